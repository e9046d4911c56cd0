"""Standing approvals over HTTP: list and end them, and set their limits at a queue."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.queues import QueueRow, SetsUp, row_of
from approvals.queues import acts as queues
from durableagents.contrib.standing_approvals import services
from durableagents.contrib.standing_approvals.queries import GrantPage, GrantRow, find_one, find_page
from durableagents.contrib.standing_approvals.services import BoundsBody
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.cursors import placed
from ledger.web.roles import EVERY, roles
from runs.journal.asked.queues import QUEUES
from runs.services.bodies import SteerBody


class Grants(ApiView):
    """Standing approvals, newest first.

    Operators, auditors and administrators see all of them, others those of queues in which they may decide."""

    permission_classes = [SetsUp]
    roles = READ

    @described("List standing approvals", GrantPage, query=("queue", "cursor", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "queue", "cursor")
        queue = query.choice("queue", sorted(QUEUES)) or ""
        rows = find_page(request.user, queue=queue, beyond=query.placed(), limit=query.limit + 1)
        return query.page(rows, lambda one: {"cursor": placed(one.at, one.id)}, lambda one: one)


class OneGrant(ApiView):
    """One standing approval."""

    permission_classes = [SetsUp]
    roles = READ

    @described("Get a standing approval", GrantRow)
    def get(self, request: Request, grant_id: int) -> Response:
        Query(request)
        return Response(find_one(grant_id, request.user)[0])


class GrantEnd(ApiView):
    """End a standing approval. The giver, approvers of the queue, operators and administrators may do so."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("End a standing approval", GrantRow, body=SteerBody)
    def post(self, request: Request, grant_id: int) -> Response:
        find_one(grant_id, request.user)
        why = read_body(request, SteerBody).justification
        services.revoke(grant_id, justification=why, by=self.by, roles=roles(request.user))
        return Response(find_one(grant_id, request.user)[0])


class QueueGrants(ApiView):
    """Set the limits of standing approvals at a queue."""

    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Set limits of standing approvals", QueueRow, body=BoundsBody)
    def post(self, request: Request, queue: str) -> Response:
        queues.find(queue)
        return Response(row_of(services.set_limits(queue, read_body(request, BoundsBody), by=self.by)))
