"""Checks whether the code that continues a run is the code that wrote its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ledger import events as e
from runs.engine.checkpoints.position import Position
from runs.engine.fingerprint.schemes import as_stored
from runs.engine.fingerprint.words import differences, join_differences
from runs.engine.journal import Journal, Snapshot
from runs.engine.outcomes import Broken
from runs.engine.runtime import Runtime
from runs.engine.steps.telling import warn_of
from runs.engine.tape import payload_of

OTHER_CODE = "other_code"


def written_by_others(agent: Any, position: Position) -> str:
    """Return the fingerprint of the other code that wrote the checkpoint.

    Empty if this code wrote it, or if an operator has resumed the run after it stopped because of that code.
    """
    wrote = position.at.fingerprint
    if not wrote or agent.is_own(wrote) or was_looked_at(position.tail, agent.fingerprint()):
        return ""
    return wrote


def was_looked_at(tail: Iterable[e.Event], code: str) -> bool:
    """Return whether the run already stopped because of this code.

    While such a stop is open, the run isn't driven.
    """
    return any(
        isinstance(event, e.OperatorNeeded) and event.reason == OTHER_CODE and payload_of(event).get("code") == code
        for event in tail
    )


async def other_code(agent: Any, journal: Journal, runtime: Runtime, wrote: str, at: Snapshot) -> Broken | None:
    """Return a stop because other code wrote the checkpoint; None if that is only logged, as in development."""
    difference = told_apart(agent, wrote, await runtime.code_of(agent.graph_id, wrote))
    if runtime.refuses_other_code:
        return Broken(OTHER_CODE, difference)
    warn_of(runtime, journal, f"{at.generation}.{at.visit}", difference["problem"])
    return None


def told_apart(agent: Any, wrote: str, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the details for an operator: both fingerprints, and the differences in the code.

    The differences can be given only if the other code's parts are `known`.
    """
    mine = None if known is None else as_stored(agent, wrote)
    texts = [] if known is None or mine is None else differences(known, mine)
    how = join_differences(texts) if texts else "the difference isn't known here"
    problem = f"the checkpoint was written by different code of {agent.graph_id} than this: {how}"
    return {"problem": problem, "wrote": wrote, "code": agent.fingerprint(), "differences": texts}
