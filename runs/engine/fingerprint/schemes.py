"""Digests of an agent's version: by the current scheme, and by earlier ones that may be recorded."""

from __future__ import annotations

import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable
from typing import Any

from runs.engine.fingerprint.described import Described, described, json_schema, tool_described
from runs.engine.fingerprint.reach import Reach, code, home_of
from runs.engine.tools import FOR_DISPATCH, Tool

SCHEME = "3:"  # prefix of every digest; only digests of the same scheme are compared
SECOND = "2:"
_SETTINGS = ("timeout", "most_tokens", "window", "max_repairs", "temperature")


def parts(agent: Described) -> dict[str, Any]:
    """Return a version's parts as plain data.

    Code is represented by digests in the table `code`, with each definition once.
    """
    reach = Reach(
        [*(home_of(n.function) for n in agent.nodes.values()), *(home_of(each) for each in (agent.input, agent.state))]
    )
    made = described(agent, reach.code)
    for assistant in agent.assistants:
        given = {name: getattr(assistant, name) for name in _SETTINGS}
        made["assistants"][assistant.name]["settings"] = {n: v for n, v in given.items() if v is not None}
    return made | {"code": reach.table}


def digest(of: dict[str, Any], scheme: str = SCHEME) -> str:
    """Return the digest of `parts`."""
    return scheme + hashlib.sha256(json.dumps(of, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_current(stored: str) -> bool:
    return stored.startswith(SCHEME)


def scheme_of(stored: str) -> str | None:
    """Return the scheme of a stored digest; None if this code doesn't know it."""
    scheme = f"{stored.partition(':')[0]}:" if ":" in stored else ""
    return scheme if scheme in (SCHEME, SECOND, "") else None


def second_parts(agent: Described) -> dict[str, Any]:
    """Return `parts` according to the second scheme, which covers only what a function names in its own module."""
    return described(agent, code)


def second_scheme(agent: Described) -> str:
    return digest(second_parts(agent), SECOND)


def first_parts(agent: Described) -> dict[str, Any]:
    """Return `parts` according to the first scheme, from before schemes had names."""
    return {
        "nodes": {n.name: {"edges": list(n.edges), "source": _text(n.function)} for n in agent.nodes.values()},
        "start": agent.start,
        "tools": {
            t.name: {
                "class": str(t.replay_class),
                "input": json_schema(t.input),
                "output": json_schema(t.output),
            }
            for t in agent.all_tools()
        },
        "state": json_schema(agent.state),
        "prompts": {a.name: a.instructions for a in agent.assistants},
    }


def first_scheme(agent: Described) -> str:
    """Return the digest according to the first scheme, from before schemes had names."""
    return digest(first_parts(agent), "")


def as_stored(agent: Described, stored: str) -> dict[str, Any] | None:
    """Return this agent's `parts` according to the scheme of a stored digest; None if the scheme is unknown."""
    if is_current(stored):
        return agent.parts()
    if stored.startswith(SECOND):
        return second_parts(agent)
    return first_parts(agent) if scheme_of(stored) == "" else None


def tool_digest(tool: Tool) -> str:
    """Return the digest of one tool. Tools with different digests don't share cached reads."""
    known = _DIGESTS.get(id(tool))
    if known is None or known[0] is not tool:
        function = tool.opened(FOR_DISPATCH)
        reach = Reach([home_of(getattr(function, "author", function)), home_of(tool.input)])
        made = tool_described(tool, reach.code)
        known = _DIGESTS[id(tool)] = tool, digest(made | {"all": reach.table})
    return known[1]


_DIGESTS: dict[int, tuple[Tool, str]] = {}


def _text(function: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return getattr(function, "__qualname__", "?")
