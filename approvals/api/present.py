"""Build API rows of approvals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import UUID

from approvals.api.schemas import (
    ApprovalRow,
    DecisionRow,
    DocumentRow,
    PreviousRow,
    StageRow,
    VoteRow,
)
from approvals.authentic import marks_of
from approvals.models import Approval, ApprovalState, Decision
from approvals.proofs import wanted_by
from approvals.queues.sight import asked_at, readable
from approvals.votes import AFTER, NEXT, StageShown, stage_number, stages_of
from runs import features
from runs.engine.errors import DefinitionError
from runs.engine.gating.documents import named_in
from runs.engine.gating.fields import EDITABLE
from runs.journal.asked.queues import QUEUES


def approval_rows(approvals: Sequence[Approval]) -> list[ApprovalRow]:
    """Return rows of approvals, with their decisions and the decision on the previous revision.

    This takes two further queries, one more for viewers who may not read every run's payloads, and one more if any
    approval is open.
    """
    ids = {a.id for a in approvals} | {a.previous_id for a in approvals if a.previous_id}
    decision_rows = list(Decision.objects.filter(approval_id__in=ids).select_related("approval"))
    decisions: dict[UUID | None, Decision] = {d.approval_id: d for d in decision_rows if d.closes}
    own = {a.id for a in approvals}
    ours = marks_of(decision_rows)
    stages = stages_of(approvals, [d for d in decision_rows if d.approval_id in own], ours)
    readable_ids = readable(approvals)
    added = [make(approvals, readable_ids) for make in features.parts_of_all(lambda each: each.approval_fields)]
    return [
        approval_row(
            a,
            stages[a.id],
            _decision_row(decisions.get(a.id), ours),
            _decision_row(decisions.get(a.previous_id), ours),
            is_read=a.id in readable_ids,
            fields={name: value for by_id in added for name, value in by_id.get(a.id, {}).items()},
        )
        for a in approvals
    ]


def _decision_row(decision: Decision | None, ours: Mapping[int, bool | None]) -> DecisionRow | None:
    return None if decision is None else DecisionRow.of(decision, is_authentic=ours[decision.pk])


def approval_row(
    approval: Approval,
    stages: list[StageShown],
    decision: DecisionRow | None,
    earlier: DecisionRow | None = None,
    *,
    is_read: bool = True,
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> ApprovalRow:
    """Return the row of one revision. `arguments` is read from the bytes that `plan_hash` covers.

    `earlier` is the decision on the revision before this one. Without `is_read`, the row shows that a request exists,
    but not its content.
    """
    evidence = {} if is_read else {"evidence": [], "why": "", "effect": ""}
    plan = approval.planned() if is_read else None
    return ApprovalRow.of(
        approval,
        state=str(approval.state),
        escalated_to=approval.escalated_to or [],
        arguments=None if plan is None else plan.get("arguments"),
        editable=None if plan is None else plan.get(EDITABLE),
        documents=[] if plan is None else _documents(approval, plan),
        wanted={} if plan is None else _wanted(approval, plan),
        hidden=not is_read,
        decision=decision,
        stage=stage_number(approval),
        stages=[_stage(each) for each in stages],
        previous=PreviousRow.of(None, id=approval.previous_id, decision=earlier) if approval.previous_id else None,
        **{"claims": [], "inquiries": [], "delegations": [], **fields, **evidence},
    )


def _documents(approval: Approval, plan: dict[str, Any]) -> list[DocumentRow]:
    """Return the rows of the plan's documents; none if its list can't be read, in which case nobody can approve it."""
    try:
        listed = named_in(plan)
    except ValueError:
        return []
    at = f"/api/v1/approvals/{approval.id}/documents"
    return [
        DocumentRow.of(
            None, n=n, name=each.name, media_type=each.media_type, size=each.size, sha256=each.digest, url=f"{at}/{n}"
        )
        for n, each in enumerate(listed, 1)
    ]


def _stage(each: StageShown) -> StageRow:
    votes = [VoteRow.of(vote.row, is_authentic=vote.is_authentic) for vote in each.votes]
    state = NEXT if each.state == AFTER else each.state
    return StageRow.of(
        None, number=each.number, queue=each.queue, quorum=each.quorum, state=state, yes=each.yes, votes=votes
    )


def _wanted(approval: Approval, plan: dict[str, Any]) -> dict[str, Any]:
    """Return the proof required to approve this request.

    While the approval is open, the proof follows from the plan and the queue's current settings, which may be newer;
    afterwards only from the plan.
    """
    known = QUEUES.now().thresholds if approval.state == ApprovalState.OPEN else {}
    queues = [known[queue] for queue in asked_at(approval) if queue in known]
    try:
        return wanted_by(plan, str(plan.get("agent")), approval.tool, queues).as_json()
    except DefinitionError:
        return {}
