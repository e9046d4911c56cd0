"""States that older code of an agent wrote, brought up to this one's: step by step, from one number to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runs.engine.canonical import plain
from runs.engine.checkpoints.position import Position
from runs.engine.errors import JournalBroken, brief
from runs.engine.migration.declared import number_in
from runs.engine.migration.formats import UnknownFormat
from runs.engine.runtime import Runtime
from runs.engine.undo.declared import UNDO_NODE


async def brought_up(agent: Any, runtime: Runtime, stands: Position) -> Position:
    """Where a run stands, with the state as this code of its version has it; only other code under the version's name
    wrote another one. Raises JournalBroken for a number that can't be read, and for a step that breaks."""
    wrote = stands.at.fingerprint
    if not wrote or agent.is_own(wrote) or stands.at.node == UNDO_NODE:
        return stands
    known = await runtime.code_of(agent.graph_id, wrote)
    if known is None and not agent.upgraders:
        return stands
    if known is None:
        raise JournalBroken(
            f"other code of {agent.graph_id} wrote the checkpoint, and nobody knows with which number of its state",
            "unknown_format",
        )
    number = number_in(known)
    if stands.entry is not None:
        node, state = stands.entry
        return replace(stands, entry=(node, _upgraded(agent, number, state)))
    return replace(stands, at=replace(stands.at, state=_upgraded(agent, number, stands.at.state)))


def _upgraded(agent: Any, number: int, state: Any) -> Any:
    try:
        return agent.upgraded(number, plain(state))
    except UnknownFormat as error:
        raise JournalBroken(str(error), "unknown_format") from error
    except Exception as error:  # the author's own code
        raise JournalBroken(
            f"bringing the state of number {number} up to {agent.graph_id} broke: {brief(error)}", "bad_checkpoint"
        ) from error
