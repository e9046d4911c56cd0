"""Checks of an agent's undo declarations. Problems are reported before a run can start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from runs.engine.errors import DefinitionError, MisusedContext
from runs.engine.tools import Tool, Undo

UNDO_NODE: Final = "_undo"  # name of the visit's node; agents can't have a node of this name
WITH_PARENT: Final = "undone_with_parent"  # the reason why a completed run undoes its effects
ON_FAILURE = ("undo", "leave")


class OfTheTool:
    """The value of `undo=` for a call that doesn't set it: the tool's own undo applies."""


OF_THE_TOOL: Final = OfTheTool()


def undos_of(tools: Iterable[Tool], more: Iterable[Undo]) -> dict[str, Undo]:
    return {_key(t.name, t.undo): t.undo for t in tools if t.undo is not None} | {_own(each): each for each in more}


def _key(tool: str, undo: Undo) -> str:
    return f"{tool}:{undo.name}"


def _own(undo: Undo) -> str:
    return f":{undo.name}"


def name_of(known: Mapping[str, Undo], tool: Tool, wanted: Undo | OfTheTool, whose: str) -> str:
    """Return the name under which a call's undo is recorded. Raises MisusedContext."""
    if tool.is_pure:
        raise MisusedContext(f"tool {tool.name!r} is pure: there is nothing to undo")
    meant = tool.undo if isinstance(wanted, OfTheTool) else wanted
    name = next((name for name, undo in known.items() if undo is meant), None)
    if meant is None or name is None:
        by = meant.tool.name if meant is not None else "nothing"
        raise MisusedContext(f"{whose} does not declare the undo of {tool.name!r} by {by!r}: name it in undos=[…]")
    return name


def check_undos(whose: str, tools: Mapping[str, Tool], undos: Sequence[Undo], on_failure: Any) -> None:
    """Check the undos of an agent. Raises DefinitionError for undos that can't work as declared."""
    if on_failure not in ON_FAILURE:
        raise DefinitionError(f"{whose}: on_failure={on_failure!r}: give one of {', '.join(ON_FAILURE)}")
    named: dict[str, Undo] = {}
    for each in undos:
        if not isinstance(each, Undo):
            raise DefinitionError(f"{whose}: undos: {each!r} is not an undo: give Undo(tool, args)")
        if named.setdefault(each.name, each) is not each:
            raise DefinitionError(f"{whose}: there are two undos named {each.name!r}: give one of them another name=")
        _check(f"{whose}: undo {each.name!r}", each.tool, tools)
    for t in tools.values():
        if t.undo is not None:
            _check(f"{whose}: the undo of tool {t.name!r}", t.undo.tool, tools)


def _check(which: str, by: Tool, tools: Mapping[str, Tool]) -> None:
    if tools.get(by.name) is not by:
        raise DefinitionError(f"{which}: the agent does not declare the tool {by.name!r}: name it in tools=[…]")
    if by.is_pure:
        raise DefinitionError(f"{which}: {by.name!r} is pure, so it can't undo anything: name a tool with an effect")
    if by.undo is not None:
        raise DefinitionError(
            f"{which}: {by.name!r} has an undo of its own, and an undo can't be undone: name another tool"
        )
    if by.is_unsafe and by.gate is None and by.reconcile is None:
        raise DefinitionError(
            f"{which}: {by.name!r} is unsafe on replay, so an interrupted undo would have an unknown outcome: "
            "give it a key, a gate or a reconcile hook"
        )
