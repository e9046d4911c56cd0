"""Verify actions on cases against the journal, for `approvals.verification`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from approvals.models import Approval
from ledger import events as e
from runs.engine.amending import changes
from runs.engine.gating.fields import editable_in
from runs.engine.tape import payload_of

# What an amendment may change in a plan: the arguments, and what the gate derives from them.
_OF_THE_ARGUMENTS = frozenset({"arguments", "headline", "rule", "amount", "stage", "passed", "queue", "proof"})


def as_decision(event: e.PlanAmended) -> e.ApprovalDecided:
    """Convert an amendment to the decision that closes its question."""
    return e.ApprovalDecided(
        slot=event.slot,
        attempt=event.attempt,
        n=event.n,
        approval_id=event.approval_id,
        verdict="amended",
        plan_hash=event.plan_hash,
        by=event.by,
        role=event.role,
        payload=event.payload,
    )


def amendment_problems(what: str, row: Approval, plan: Any, amended: e.PlanAmended | None) -> Iterator[str]:
    """Yield the problems of a question that follows an amendment: only changes that the gate allows are valid."""
    before = row.previous
    if before is None or amended is None:
        return
    if amended.next != str(row.id):
        yield f"{what}: the amendment of approval {before.id} names a different next approval"
    old = before.planned()
    if not isinstance(plan, dict) or old is None:
        return  # already reported as not matching its hash
    payload, fields = payload_of(amended), editable_in(old)["properties"]
    if plan.get("arguments") != payload.get("arguments"):
        yield f"{what}: its arguments are not those that {amended.by} replaced them with"
    made = changes(old.get("arguments") or {}, plan.get("arguments") or {})
    if made != payload.get("changes"):
        yield f"{what}: the changes since approval {before.id} differ from those in the journal"
    if kept := sorted(name for name in made if name not in fields):
        yield f"{what}: {', '.join(kept)} changed, but the gate does not let approvers change them"
    others = {name for name in {*plan, *old} - _OF_THE_ARGUMENTS if plan.get(name) != old.get(name)}
    if others:
        yield f"{what}: {', '.join(sorted(others))} changed with the arguments"
