"""Upgrades of states that older code of an agent wrote, step by step from one schema number to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ledger import events as e
from runs.engine.canonical import plain
from runs.engine.checkpoints.position import Position
from runs.engine.errors import JournalBroken, describe_error
from runs.engine.fingerprint.schemes import scheme_of
from runs.engine.messages import changes_in, fields_changed, number_of_changes
from runs.engine.migration import UnknownFormat, number_in
from runs.engine.runtime import Runtime
from runs.engine.undo import UNDO_NODE


async def brought_up(agent: Any, runtime: Runtime, position: Position) -> Position:
    """Upgrade the state if other code with the version's name wrote it. On failure, set `unread` instead of raising."""
    wrote = position.at.fingerprint
    if not wrote or agent.is_own(wrote) or position.at.node == UNDO_NODE:
        return position
    known = await runtime.code_of(agent.graph_id, wrote)
    try:
        return _brought_up(agent, known, position)
    except JournalBroken as broken:
        return replace(position, unread=broken)


def number_by(wrote: str, known: Mapping[str, Any] | None) -> int:
    """Return the schema number of states written by the code with this fingerprint.

    0 if unknown; 1 if the fingerprint is from before schemes had names.
    """
    return 1 if scheme_of(wrote) == "" else 0 if known is None else number_in(known)


def _brought_up(agent: Any, known: Mapping[str, Any] | None, position: Position) -> Position:
    number = number_by(position.at.fingerprint, known)
    if not number and not agent.upgraders:
        return position
    if not number:
        raise JournalBroken(
            f"other code of {agent.graph_id} wrote the checkpoint, and the number of its state is unknown",
            "unknown_format",
        )
    if position.entry is not None:
        node, state = position.entry
        brought = replace(position, entry=(node, _upgraded(agent, number, state)))
    else:
        brought = replace(position, at=replace(position.at, state=_upgraded(agent, number, position.at.state)))
    _keeps_messages(agent, position.tail)
    return brought


def _upgraded(agent: Any, number: int, state: Any) -> Any:
    try:
        return agent.upgraded(number, plain(state))
    except UnknownFormat as error:
        raise JournalBroken(str(error), "unknown_format") from error
    except Exception as error:  # the upgrader is the author's own code
        raise JournalBroken(
            f"upgrading the state from number {number} to {agent.graph_id} failed: {describe_error(error)}",
            "bad_checkpoint",
        ) from error


def _keeps_messages(agent: Any, tail: Sequence[e.Event]) -> None:
    """Refuse changes by messages or operators that were recorded under another schema number.

    Upgraders convert states, but not changes.
    """
    for event in changes_in(tail):
        if number_of_changes(event) == agent.schema_version:
            continue
        if names := fields_changed(event):
            raise JournalBroken(
                f"a change made during the visit ({', '.join(names)}) has no place in {agent.graph_id}: its state "
                f"has number {agent.schema_version}, and that was of number {number_of_changes(event)}",
                "bad_checkpoint",
            )
