"""Carry out a requested decision, with or without a standing approval."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from approvals import services
from approvals.bodies import AgainBody, DecisionBody
from approvals.models import Approval
from approvals.queues.who import wrong
from ledger.actors import Actor
from runs import features
from runs.engine.gating.stages import APPROVE


def decide_as_requested(
    approval_id: UUID, body: DecisionBody, again: AgainBody | None, by: Actor, *, evidence: Any = None
) -> Approval:
    """Decide as the body says; `evidence` is its proof.

    Raises InvalidInput, and the errors of `services.decide` and of the feature that gives standing approvals.
    """
    given: dict[str, Any] = {
        "plan_hash": body.plan_hash,
        "justification": body.justification,
        "stage": body.stage,
        "typed": body.typed,
        "by": by,
    }
    if again is None:
        return services.decide(approval_id, verdict=body.verdict, evidence=evidence, **given)
    if body.verdict != APPROVE:
        raise wrong("again", "can only be sent with approve", "approve with this field, or leave it out")
    if body.changes_arguments:
        raise wrong(
            "again",
            "can't be combined with changes",
            "approve the changed call now, and give a standing approval another time",
        )
    approve_again = features.only(lambda each: each.approve_again)
    if approve_again is None:
        raise wrong("again", "requires an app that is not installed", "approve this call only")
    return approve_again(approval_id, again=again, **given)
