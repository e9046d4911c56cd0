"""What a passed deadline makes of each thing that is waited for, as the sweeper does it."""

from __future__ import annotations

from uuid import UUID

from durableagents.testing.family import Member
from ledger import events as e
from runs.engine.memory import MemoryWait

_RESOLUTIONS = {
    "timer": "fired",
    "signal": "timed_out",
    "input": "timed_out",
    "message": "timed_out",
    "webhook": "timed_out",
}
NOBODY = "No decision was made before the deadline."


def acts_on() -> tuple[str, ...]:
    """The kinds of wait that time ends. People's other duties are only overdue."""
    return (*_RESOLUTIONS, "approval")


def ends(wait: MemoryWait) -> bool:
    """Whether its time ends it: a question may wait for ever. One that would go to further people ends like any other,
    for a story has no queues of an installation."""
    return wait.spec.detail.get("on_timeout") != "remind"


def fire(member: Member, wait_id: UUID, wait: MemoryWait) -> None:
    """Its time is over."""
    spec = wait.spec
    if spec.kind == "approval":
        assert wait.gate is not None
        event = e.ApprovalDecided(
            slot=spec.slot,
            n=spec.n,
            approval_id=str(wait.gate.approval_id),
            verdict="expired",
            plan_hash=wait.gate.plan_hash,
            by="system:sweeper",
            role="",
            payload={"justification": NOBODY},
        )
        member.run.resolve(wait_id, "expired", event=event)
        return
    resolution = _RESOLUTIONS[spec.kind]
    event_of_it = e.WaitResolved(
        slot=spec.slot, attempt=spec.attempt, wait=spec.kind, n=spec.n, resolution=resolution, by="system:sweeper"
    )
    member.run.resolve(wait_id, resolution, event=event_of_it)
