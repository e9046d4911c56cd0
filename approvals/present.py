"""What an approval looks like from outside. One shape for API and console."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from approvals.models import Approval, Decision


def present_approvals(approvals: Sequence[Approval]) -> list[dict[str, Any]]:
    """Approvals with their decisions and what was said to the revision before, in two further queries."""
    ids = {a.id for a in approvals} | {a.previous_id for a in approvals if a.previous_id}
    decisions: dict[UUID | None, Decision] = {d.approval_id: d for d in Decision.objects.filter(approval_id__in=ids)}
    return [present_approval(a, decisions.get(a.id), decisions.get(a.previous_id)) for a in approvals]


def present_approval(approval: Approval, decision: Decision | None, earlier: Decision | None = None) -> dict[str, Any]:
    """One revision of one question. `arguments` is read from the very bytes that `plan_hash` covers.

    `earlier` is the decision on the revision before this one.
    """
    return {
        "id": approval.id,
        "run_id": approval.run_id,
        "queue": approval.queue,
        "state": str(approval.state),
        "revision": approval.revision,
        "tool": approval.tool,
        "title": approval.title,
        "effect": approval.effect,
        "rule": approval.rule,
        "arguments": _arguments(approval),
        "plan_hash": approval.plan_hash,
        "evidence": approval.evidence,
        "why": approval.why,
        "requested_by": approval.requested_by,
        "opened_at": approval.opened_at,
        "deadline": approval.deadline,
        "decided_at": approval.decided_at,
        "decision": present_decision(decision),
        "previous": {"id": approval.previous_id, "decision": present_decision(earlier)}
        if approval.previous_id
        else None,
    }


def _arguments(approval: Approval) -> Any:
    """None also where the bytes were damaged: they then aren't what `plan_hash` covers, and no decision on them is taken."""
    try:
        plan = json.loads(bytes(approval.plan))
    except (ValueError, RecursionError):
        return None
    return plan.get("arguments") if isinstance(plan, dict) else None


def present_decision(decision: Decision | None) -> dict[str, Any] | None:
    """Who decided what, as what and why."""
    if decision is None:
        return None
    return {
        "verdict": decision.verdict,
        "plan_hash": decision.plan_hash,
        "justification": decision.justification,
        "by": decision.by,
        "role": decision.role,
        "at": decision.at,
    }
