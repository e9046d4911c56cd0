"""Decides whether a gated call is the same as another, for standing approvals: by everything in the plan but the
agent's version, so that a changed rule or policy asks again. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from runs.engine.canonical import digest_of

SAME = "same"  # key in a plan of the fields that count
NO_TOOL = "approve"  # in place of a tool in a plan whose approval is only information
_AS_ASKED = ("tool", "title", "effect", "queue", "rule", "policy")


def told(fields: Sequence[str]) -> dict[str, Any]:
    """Return a plan's entry for the fields that must be the same; empty (all fields count) if none are named."""
    return {SAME: list(fields)} if fields else {}


def told_of(tool: Any) -> dict[str, Any]:
    """Return the same for the tool that a node asks about; empty if there is no gate or it names no fields."""
    return {} if tool is None or tool.gate is None else told(tool.gate.same)


def fields_in(plan: Any) -> list[str]:
    """Return the fields of a plan's arguments that must be the same. Raises ValueError if unreadable or unknown."""
    arguments = plan.get("arguments") if isinstance(plan, dict) else None
    if not isinstance(arguments, dict):
        raise ValueError("its arguments have no fields")
    if SAME not in plan:
        return sorted(arguments)
    named = plan[SAME]
    if not isinstance(named, list) or not named or not all(isinstance(name, str) for name in named):
        raise ValueError("what has to be the same can't be read")
    if unknown := [name for name in named if name not in arguments]:
        raise ValueError(f"{', '.join(unknown)} has to be the same, and is no field of its arguments")
    return named


def sameness(plan: Any) -> str:
    """Return the digest of all that must be the same. Raises ValueError as `fields_in` does."""
    fields = fields_in(plan)
    if not plan.get("agent") or plan.get("tool") in (None, "", NO_TOOL):
        raise ValueError("it names no tool, so a yes to it lets nothing through")
    what = {name: plan.get(name) for name in _AS_ASKED} | {"agent": agent_of(plan), "is_named": SAME in plan}
    return digest_of(what | {"arguments": {name: plan["arguments"][name] for name in fields}})


def agent_of(plan: Any) -> str:
    """Return the agent's name without its version."""
    return str(plan.get("agent", "")).partition("@")[0]


def sameness_of(stored: bytes) -> str | None:
    """Return a stored plan's sameness, or None. Numbers are parsed as written, as for the digests in rows."""
    try:
        return sameness(json.loads(stored))
    except (ValueError, RecursionError):
        return None
