"""Claims, inquiries and delegations in the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
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
from ledger.web.bodies import NoBody, Strict
from ledger.web.roles import EVERY, roles
from runs.services.bodies import SteerBody


class Claims(ApiView):
    """Tell others that you are reviewing an approval.

    The permission depends on the approval's queue, as for a decision.
    """

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


def _act(
    summary: str,
    about: str,
    row: type[InquiryRow | DelegationRow],
    service: Callable[..., Any],
    body: type[Strict] = SteerBody,
    *,
    is_of_decider: bool = False,
) -> Any:
    """Return the view class of an act that adds a row to an approval, for those who decide it."""

    class CaseAct(ApiView):
        __doc__ = about
        roles = {"POST": EVERY}

        @described(summary, row, status=201 if is_of_decider else 200, body=body)
        def post(self, request: Request, approval_id: UUID, **address: int) -> Response:
            approval, by = shown_one(approval_id, request.user), self.by
            if is_of_decider:
                by = services.actor_for_decision(approval, by, roles(request.user))
            done = service(approval_id, **address, by=by, **dict(read_body(request, body)))
            return Response(row.of(done, is_authentic=True), status=201 if is_of_decider else 200)

    return CaseAct.as_view()


_DELEGATED = "Let another person decide an approval instead of the caller."
# The acts by their URL below an approval, each with its name.
ACTS = {
    ("inquiries", "api-inquiries"): _act(
        "Ask about an approval",
        "Ask a person about an approval.",
        InquiryRow,
        inquiries.ask,
        InquiryBody,
        is_of_decider=True,
    ),
    ("inquiries/<int:n>/answer", "api-inquiry-answer"): _act(
        "Answer an inquiry",
        "Answer an inquiry. Only the person asked may do so.",
        InquiryRow,
        inquiries.answer,
        AnswerBody,
    ),
    ("inquiries/<int:n>/withdraw", "api-inquiry-withdraw"): _act(
        "Withdraw an inquiry",
        "Withdraw an inquiry. Only the person who asked may do so.",
        InquiryRow,
        inquiries.withdraw,
    ),
    ("delegations", "api-delegations"): _act(
        "Delegate an approval", _DELEGATED, DelegationRow, delegations.delegate, DelegationBody, is_of_decider=True
    ),
    ("delegations/<int:n>/end", "api-delegation-end"): _act(
        "End a delegation",
        "End a delegation. Both the person asked and the person who asked may do so.",
        DelegationRow,
        delegations.take_back,
    ),
}
