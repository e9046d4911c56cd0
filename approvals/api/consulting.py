"""Asking a named person about a question, and handing it to one. Who may depends on the question, so the routes let
every role in and the question decides."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from approvals import services
from approvals.api.schemas import DelegationRow, InquiryRow
from approvals.api.views import shown_one
from approvals.consulting import delegations, inquiries
from approvals.consulting.bodies import AnswerBody, DelegationBody, InquiryBody
from ledger.web.api_base import ApiView, described, read_body
from ledger.web.roles import EVERY, roles
from runs.services.bodies import SteerBody


class Inquiries(ApiView):
    """Asking somebody about it."""

    roles = {"POST": EVERY}

    @described("Ask somebody about an approval", InquiryRow, status=201, body=InquiryBody)
    def post(self, request: Request, approval_id: UUID) -> Response:
        approval = shown_one(approval_id, request.user)
        by = services.deciding(approval, self.by, roles(request.user))
        body = read_body(request, InquiryBody)
        row = inquiries.ask(approval_id, to=body.to, question=body.question, by=by)
        return Response(InquiryRow.of(row, is_genuine=True), status=201)


class InquiryAnswer(ApiView):
    """Answering what one was asked."""

    roles = {"POST": EVERY}

    @described("Answer a question about an approval", InquiryRow, body=AnswerBody)
    def post(self, request: Request, approval_id: UUID, n: int) -> Response:
        shown_one(approval_id, request.user)
        text = read_body(request, AnswerBody).answer
        return Response(InquiryRow.of(inquiries.answer(approval_id, n, answer=text, by=self.by), is_genuine=True))


class InquiryWithdraw(ApiView):
    """Waiting for an answer no longer."""

    roles = {"POST": EVERY}

    @described("Withdraw a question about an approval", InquiryRow, body=SteerBody)
    def post(self, request: Request, approval_id: UUID, n: int) -> Response:
        shown_one(approval_id, request.user)
        why = read_body(request, SteerBody).justification
        return Response(
            InquiryRow.of(inquiries.withdraw(approval_id, n, justification=why, by=self.by), is_genuine=True)
        )


class Delegations(ApiView):
    """Handing it over."""

    roles = {"POST": EVERY}

    @described("Hand an approval to somebody", DelegationRow, status=201, body=DelegationBody)
    def post(self, request: Request, approval_id: UUID) -> Response:
        approval = shown_one(approval_id, request.user)
        by = services.deciding(approval, self.by, roles(request.user))
        body = read_body(request, DelegationBody)
        row = delegations.delegate(approval_id, to=body.to, justification=body.justification, by=by)
        return Response(DelegationRow.of(row, is_genuine=True), status=201)


class DelegationEnd(ApiView):
    """Taking it back, or giving it back."""

    roles = {"POST": EVERY}

    @described("Take back what was handed over", DelegationRow, body=SteerBody)
    def post(self, request: Request, approval_id: UUID, n: int) -> Response:
        shown_one(approval_id, request.user)
        why = read_body(request, SteerBody).justification
        row = delegations.take_back(approval_id, n, justification=why, by=self.by)
        return Response(DelegationRow.of(row, is_genuine=True))
