"""What an approval looks like from outside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from approvals.api.schemas import ApprovalRow, DecisionRow, PreviousRow
from approvals.models import Approval, Decision
from runs.engine.gate.editable import EDITABLE


def approval_rows(approvals: Sequence[Approval]) -> list[ApprovalRow]:
    """Approvals with their decisions and what was said to the revision before, in two further queries."""
    ids = {a.id for a in approvals} | {a.previous_id for a in approvals if a.previous_id}
    decisions: dict[UUID | None, Decision] = {d.approval_id: d for d in Decision.objects.filter(approval_id__in=ids)}
    return [approval_row(a, decisions.get(a.id), decisions.get(a.previous_id)) for a in approvals]


def approval_row(approval: Approval, decision: Decision | None, earlier: Decision | None = None) -> ApprovalRow:
    """One revision of one question. `arguments` is read from the very bytes that `plan_hash` covers.

    `earlier` is the decision on the revision before this one.
    """
    plan = _plan(approval)
    return ApprovalRow.of(
        approval,
        state=str(approval.state),
        arguments=plan.get("arguments"),
        editable=plan.get(EDITABLE),
        decision=decision and DecisionRow.of(decision),
        previous=PreviousRow.of(None, id=approval.previous_id, decision=earlier and DecisionRow.of(earlier))
        if approval.previous_id
        else None,
    )


def _plan(approval: Approval) -> dict[str, Any]:
    """Nothing where the bytes were damaged: they then aren't what `plan_hash` covers, and nobody decides on them."""
    try:
        plan = json.loads(bytes(approval.plan))
    except (ValueError, RecursionError):
        return {}
    return plan if isinstance(plan, dict) else {}
