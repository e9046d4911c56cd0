"""Claims in the API."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from approvals import services
from approvals.api.present import approval_rows
from approvals.api.schemas import ApprovalRow
from approvals.api.views import shown_one
from durableagents.contrib.casework.claims import ClaimBody, NoBody, claim, release
from ledger.web.api_base import ApiView, described, read_body
from ledger.web.roles import EVERY, roles


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
