"""Inquiries, delegations and the audit trail of approvals."""

from __future__ import annotations

from uuid import UUID

from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from approvals import services
from approvals.api.schemas import AuditPage, AuditRow, DelegationRow, InquiryRow
from approvals.api.views import shown_one
from approvals.consulting import delegations, inquiries
from approvals.consulting.common import AnswerBody, DelegationBody, InquiryBody
from approvals.trail import ACTIONS, Act, Filters, acts, digests
from ledger.web.api_base import ApiView, Query, described, read_body
from ledger.web.roles import EVERY, READS_AUDIT, roles
from runs.services.bodies import SteerBody

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
            raise ParseError(
                f"Query parameter {'cursor' if name == 'before' else name!r} can't be understood: send {fix}."
            )
        return query.page(acts(filters, query.limit + 1), lambda act: {"cursor": act.place}, act_row)


def act_row(act: Act) -> AuditRow:
    """Return the row of one act. Fields that its source lacks are null or empty."""
    row, decision = act.record, act.record if act.kind == "decision" else None
    chain = getattr(row, "chain", None)
    return AuditRow.of(
        row,
        id=f"{act.kind}-{row.pk}",
        kind=act.kind,
        action=act.action,
        at=act.at,
        is_genuine=act.is_genuine,
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


class Inquiries(ApiView):
    """Ask a person about an approval."""

    roles = {"POST": EVERY}

    @described("Ask about an approval", InquiryRow, status=201, body=InquiryBody)
    def post(self, request: Request, approval_id: UUID) -> Response:
        approval = shown_one(approval_id, request.user)
        by = services.actor_for_decision(approval, self.by, roles(request.user))
        body = read_body(request, InquiryBody)
        row = inquiries.ask(approval_id, to=body.to, question=body.question, by=by)
        return Response(InquiryRow.of(row, is_genuine=True), status=201)


class InquiryAnswer(ApiView):
    """Answer an inquiry. Only the person asked may do so."""

    roles = {"POST": EVERY}

    @described("Answer an inquiry", InquiryRow, body=AnswerBody)
    def post(self, request: Request, approval_id: UUID, n: int) -> Response:
        shown_one(approval_id, request.user)
        text = read_body(request, AnswerBody).answer
        return Response(InquiryRow.of(inquiries.answer(approval_id, n, answer=text, by=self.by), is_genuine=True))


class InquiryWithdraw(ApiView):
    """Withdraw an inquiry. Only the person who asked may do so."""

    roles = {"POST": EVERY}

    @described("Withdraw an inquiry", InquiryRow, body=SteerBody)
    def post(self, request: Request, approval_id: UUID, n: int) -> Response:
        shown_one(approval_id, request.user)
        why = read_body(request, SteerBody).justification
        return Response(
            InquiryRow.of(inquiries.withdraw(approval_id, n, justification=why, by=self.by), is_genuine=True)
        )


class Delegations(ApiView):
    """Let another person decide an approval in the caller's place."""

    roles = {"POST": EVERY}

    @described("Delegate an approval", DelegationRow, status=201, body=DelegationBody)
    def post(self, request: Request, approval_id: UUID) -> Response:
        approval = shown_one(approval_id, request.user)
        by = services.actor_for_decision(approval, self.by, roles(request.user))
        body = read_body(request, DelegationBody)
        row = delegations.delegate(approval_id, to=body.to, justification=body.justification, by=by)
        return Response(DelegationRow.of(row, is_genuine=True), status=201)


class DelegationEnd(ApiView):
    """End a delegation. Either side may do so."""

    roles = {"POST": EVERY}

    @described("End a delegation", DelegationRow, body=SteerBody)
    def post(self, request: Request, approval_id: UUID, n: int) -> Response:
        shown_one(approval_id, request.user)
        why = read_body(request, SteerBody).justification
        row = delegations.take_back(approval_id, n, justification=why, by=self.by)
        return Response(DelegationRow.of(row, is_genuine=True))
