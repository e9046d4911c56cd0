"""The audit trail of approvals."""

from __future__ import annotations

from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.schemas import AuditPage, AuditRow
from approvals.trail import ACTIONS, Act, Filters, acts, digests
from ledger.web.api_base import ApiView, Query, described
from ledger.web.roles import READS_AUDIT

_NAMES = ("action", "by", "queue", "agent", "run_id", "from", "to", "cursor")


class Audit(ApiView):
    """Decisions, overrides, other acts, and changes of accounts, newest first."""

    roles = {"GET": READS_AUDIT}

    @described("List audit records", AuditPage, query=(*_NAMES, "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, *_NAMES)
        run_id = query.uuid("run_id")
        filters = Filters(
            action=query.choice("action", ACTIONS) or "",
            by=query.text("by") or "",
            queue=query.text("queue") or "",
            agent=query.text("agent") or "",
            run=str(run_id) if run_id else "",
            since=query.text("from") or "",
            until=query.text("to") or "",
            before=query.text("cursor") or "",
        )
        for name, fix in filters.problems.items():
            raise ParseError(f"Query parameter {'cursor' if name == 'before' else name!r} is invalid: send {fix}.")
        return query.page(acts(filters, query.limit + 1), lambda act: {"cursor": act.place}, act_row)


def act_row(act: Act) -> AuditRow:
    """Return the row of one act. Fields that the act's source lacks are null or empty."""
    row, decision = act.record, act.record if act.kind == "decision" else None
    chain = getattr(row, "chain", None)
    return AuditRow.of(
        row,
        id=f"{act.kind}-{row.pk}",
        kind=act.kind,
        action=act.action,
        at=act.at,
        is_authentic=act.is_authentic,
        role=getattr(row, "role", ""),
        justification=getattr(row, "justification", ""),
        run_id=act.run_id,
        agent=act.graph_id or None,
        queue=decision.approval.queue if decision else getattr(row, "queue", ""),
        subject=decision.approval.title if decision else getattr(row, "subject", ""),
        approval_id=decision.approval_id if decision else None,
        plan_hash=decision.plan_hash if decision else None,
        documents=digests(decision.approval) if decision else [],
        seq=getattr(row, "seq", None),
        chain=bytes(chain).hex() if chain else None,
    )
