"""Claims, inquiries and delegations in the API."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from approvals import services
from approvals.api.present import approval_rows
from approvals.api.schemas import ApprovalRow, DelegationRow, InquiryRow
from approvals.api.views import shown_one
from durableagents.contrib.casework import delegations, inquiries
from durableagents.contrib.casework.claims import ClaimBody, claim, release
from durableagents.contrib.casework.common import AnswerBody, DelegationBody, InquiryBody
from ledger.web.api_base import ApiView, described, read_body
from ledger.web.bodies import NoBody
from ledger.web.roles import EVERY, roles
from runs.services.bodies import SteerBody


class Claims(ApiView):
    """Tell others that you are reviewing an approval. The permission depends on its queue, as with a decision."""

    roles = {"POST": EVERY}

    @described("Claim an approval", ApprovalRow, body=ClaimBody)
    def post(self, request: Request, approval_id: UUID) -> Response:
        approval = shown_one(approval_id, request.user)
        by = services.actor_for_decision(approval, self.by, roles(request.user))
        body = read_body(request, ClaimBody)
        claim(approval_id, by=by, minutes=body.minutes, take_over=body.take_over)
        return Response(approval_rows([shown_one(approval_id, request.user)])[0])


class Releases(ApiView):
    """End the caller's claim."""

    roles = {"POST": EVERY}

    @described("Release a claim", ApprovalRow, body=NoBody)
    def post(self, request: Request, approval_id: UUID) -> Response:
        shown_one(approval_id, request.user)
        read_body(request, NoBody)
        release(approval_id, by=self.by)
        return Response(approval_rows([shown_one(approval_id, request.user)])[0])


class Inquiries(ApiView):
    """Ask a person about an approval."""

    roles = {"POST": EVERY}

    @described("Ask about an approval", InquiryRow, status=201, body=InquiryBody)
    def post(self, request: Request, approval_id: UUID) -> Response:
        approval = shown_one(approval_id, request.user)
        by = services.actor_for_decision(approval, self.by, roles(request.user))
        body = read_body(request, InquiryBody)
        row = inquiries.ask(approval_id, to=body.to, question=body.question, by=by)
        return Response(InquiryRow.of(row, is_authentic=True), status=201)


class InquiryAnswer(ApiView):
    """Answer an inquiry. Only the person asked may do so."""

    roles = {"POST": EVERY}

    @described("Answer an inquiry", InquiryRow, body=AnswerBody)
    def post(self, request: Request, approval_id: UUID, n: int) -> Response:
        shown_one(approval_id, request.user)
        text = read_body(request, AnswerBody).answer
        return Response(InquiryRow.of(inquiries.answer(approval_id, n, answer=text, by=self.by), is_authentic=True))


class InquiryWithdraw(ApiView):
    """Withdraw an inquiry. Only the person who asked may do so."""

    roles = {"POST": EVERY}

    @described("Withdraw an inquiry", InquiryRow, body=SteerBody)
    def post(self, request: Request, approval_id: UUID, n: int) -> Response:
        shown_one(approval_id, request.user)
        why = read_body(request, SteerBody).justification
        return Response(
            InquiryRow.of(inquiries.withdraw(approval_id, n, justification=why, by=self.by), is_authentic=True)
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
        return Response(DelegationRow.of(row, is_authentic=True), status=201)


class DelegationEnd(ApiView):
    """End a delegation. Either side may do so."""

    roles = {"POST": EVERY}

    @described("End a delegation", DelegationRow, body=SteerBody)
    def post(self, request: Request, approval_id: UUID, n: int) -> Response:
        shown_one(approval_id, request.user)
        why = read_body(request, SteerBody).justification
        row = delegations.take_back(approval_id, n, justification=why, by=self.by)
        return Response(DelegationRow.of(row, is_authentic=True))
