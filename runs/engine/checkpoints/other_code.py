"""Whether a run is gone on with by the code that wrote its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ledger import events as e
from runs.engine.checkpoints.position import Position
from runs.engine.fingerprint.schemes import as_stored
from runs.engine.fingerprint.words import brief, differences
from runs.engine.journal import Journal, Snapshot
from runs.engine.outcomes import Broken
from runs.engine.runtime import Runtime
from runs.engine.steps.telling import warn_of
from runs.engine.tape import payload_of

OTHER_CODE = "other_code"


def written_by_others(agent: Any, stands: Position) -> str:
    """The fingerprint of other code that wrote the checkpoint, or that a migration was tried with; empty once somebody
    has looked at that."""
    wrote = stands.at.fingerprint
    if not wrote or agent.is_own(wrote) or was_looked_at(stands.tail, agent.fingerprint()):
        return ""
    return wrote


def was_looked_at(tail: Iterable[e.Event], code: str) -> bool:
    """Whether the run has stopped for an operator before this very code went on with it. A stop that nobody has looked
    at is still open, and keeps it from being driven."""
    return any(
        isinstance(event, e.OperatorNeeded) and event.reason == OTHER_CODE and payload_of(event).get("code") == code
        for event in tail
    )


async def other_code(agent: Any, journal: Journal, runtime: Runtime, wrote: str, at: Snapshot) -> Broken | None:
    """The checkpoint is of other code under the version's name: why the run stops, or None where that is said in its
    log alone, as in development, where code changes under its version all day."""
    told = told_apart(agent, wrote, await runtime.code_of(agent.graph_id, wrote))
    if runtime.refuses_other_code:
        return Broken(OTHER_CODE, told)
    warn_of(runtime, journal, f"{at.generation}.{at.visit}", told["problem"])
    return None


def told_apart(agent: Any, wrote: str, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an operator is shown: whose code wrote the checkpoint, whose goes on, and how they differ as far as that is
    `known`."""
    mine = None if known is None else as_stored(agent, wrote)
    said = [] if known is None or mine is None else differences(known, mine)
    how = brief(said) if said else "how it differs isn't known here"
    problem = f"the checkpoint was written by other code of {agent.graph_id} than this: {how}"
    return {"problem": problem, "wrote": wrote, "code": agent.fingerprint(), "differences": said}
