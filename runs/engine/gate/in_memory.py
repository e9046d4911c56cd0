"""Decides gates of runs in memory, as `approvals.services` does in the database."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from ledger import events as e
from runs.engine.gate.requirement import is_staged
from runs.engine.gate.votes import ABSTAIN, APPROVE, FAIL, REJECT, is_enough
from runs.engine.journal import GateOpening, WaitSpec

RESOLUTIONS = {APPROVE: "approved", REJECT: "rejected", FAIL: "rejected"}


class Waiting(Protocol):
    """A stored wait of `runs.engine.memory`, which imports this module."""

    spec: WaitSpec
    gate: GateOpening | None


class Deciding(Protocol):
    """The run of a wait."""

    events: list[e.Event]

    def append(self, events: Sequence[e.Event]) -> Any: ...
    def resolve(
        self, wait_id: UUID, resolution: str, *, event: e.Event | None = None, grant_hash: str | None = None
    ) -> bool: ...


class HasVoted(ValueError):
    """This person has already voted on the question."""


def say(run: Deciding, wait_id: UUID, wait: Waiting, verdict: str, *, by: str, role: str, justification: str) -> bool:
    """Record one person's verdict on an open gate; return whether that decided it. Raises HasVoted."""
    assert wait.gate is not None
    spec, approval_id = wait.spec, str(wait.gate.approval_id)
    [question] = [x for x in run.events if isinstance(x, e.ApprovalRequested) and x.approval_id == approval_id]
    votes = [x for x in run.events if isinstance(x, e.ApprovalVoted) and x.slot == spec.slot]
    person = person_of(by)
    if any(person in x.people and x.n == spec.n for x in votes):
        raise HasVoted(f"{by} has said what they say to this")
    payload = {"justification": justification}
    if is_staged(question.payload) or verdict == ABSTAIN:
        vote = e.ApprovalVoted(
            slot=spec.slot,
            n=spec.n,
            approval_id=approval_id,
            verdict=verdict,
            plan_hash=wait.gate.plan_hash,
            by=by,
            role=role,
            person=person,
            payload=payload,
        )
        run.append([vote])
        votes.append(vote)
    if verdict == ABSTAIN or (verdict == APPROVE and is_staged(question.payload) and not is_enough(question, votes)):
        return False
    ends = RESOLUTIONS.get(verdict, verdict)  # a deadline says "expired"
    event = e.ApprovalDecided(
        slot=spec.slot,
        n=spec.n,
        approval_id=approval_id,
        verdict=ends,
        by=by,
        role=role,
        plan_hash=wait.gate.plan_hash,
        payload=payload | ({"then": FAIL} if verdict == FAIL else {}),
    )
    granted = wait.gate.plan_hash if verdict == APPROVE else None
    run.resolve(wait_id, ends, event=event, grant_hash=granted)
    return True


def person_of(by: str) -> int:
    """Return a stable number for a person's name, since there are no accounts; the sign-in method doesn't count."""
    return int.from_bytes(hashlib.sha256(by.partition(":")[2].encode()).digest()[:6])
