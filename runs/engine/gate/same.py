"""What makes one gated call the same as another, for whoever allows the same again: who asks whom, by which rule, with
which tool in which words, and which arguments. Pure.

An agent's version is left out: what its next one asks by the same rule, in the same words, is the same. All else that a
plan says of why it is asked counts, so a rule or a policy that has changed asks anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from runs.engine.canonical import digest_of

SAME = "same"  # what a plan calls the fields that count
NO_TOOL = "approve"  # what a plan says in the place of a tool, where the yes is no more than information
_AS_ASKED = ("tool", "title", "effect", "queue", "rule", "policy")


def told(fields: Sequence[str]) -> dict[str, Any]:
    """What a plan says of the fields that have to be the same: nothing for a gate that names none, where all have."""
    return {SAME: list(fields)} if fields else {}


def told_of(tool: Any) -> dict[str, Any]:
    """The same for a tool that a node asks about; nothing where it names none, or has no gate."""
    return {} if tool is None or tool.gate is None else told(tool.gate.same)


def fields_in(plan: Any) -> list[str]:
    """The fields of a plan's arguments that have to be the same: those that its gate named, or all. Raises ValueError
    for a plan that can't be read, or names one that there is not."""
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
    """The digest of all that has to be the same. Raises ValueError as `fields_in` does."""
    fields = fields_in(plan)
    if not plan.get("agent") or plan.get("tool") in (None, "", NO_TOOL):
        raise ValueError("it names no tool, so a yes to it lets nothing through")
    what = {name: plan.get(name) for name in _AS_ASKED} | {"agent": agent_of(plan), "is_named": SAME in plan}
    return digest_of(what | {"arguments": {name: plan["arguments"][name] for name in fields}})


def agent_of(plan: Any) -> str:
    """The agent's name, whatever its version."""
    return str(plan.get("agent", "")).partition("@")[0]


def sameness_of(stored: bytes) -> str | None:
    """The same of a plan as it is stored, numbers as they are written there, and not as `canonical.parsed` reads them:
    the digests that stand in rows are made so. None where nothing can be the same as it."""
    try:
        return sameness(json.loads(stored))
    except (ValueError, RecursionError):
        return None
