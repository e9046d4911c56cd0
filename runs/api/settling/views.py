"""Settling an unknown outcome."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import ApiView, described, read_body
from ledger.web.roles import OPERATOR
from runs.api.present import one
from runs.api.schemas import RunRow
from runs.services import lifecycle, reconciling
from runs.services.bodies import DoubtBody, ReconcileBody
from runs.services.settling import agreeing, upstream


class Reconcile(ApiView):
    """Say what became of a call. Where two people settle that, the first one's word is answered with 202."""

    roles = {"POST": (OPERATOR,)}

    @described("Settle an unknown outcome", RunRow, body=ReconcileBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        body = read_body(request, ReconcileBody)
        waits = reconciling.reconcile(
            run_id,
            verdict=body.verdict,
            receipt=body.receipt,
            sender_is_gone=body.sender_is_gone,
            justification=body.justification,
            by=self.by,
            wait_id=body.wait_id,
            agrees_with=body.agrees_with,
        )
        return Response(one(run_id), status=200 if waits is None else 202)


class TakeBack(ApiView):
    """Take back what one said oneself became of a call."""

    roles = {"POST": (OPERATOR,)}

    @described("Take back what you said of an unknown outcome", RunRow, body=DoubtBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        body = read_body(request, DoubtBody)
        agreeing.take_back(run_id, body.wait_id, justification=body.justification, by=self.by)
        return Response(one(run_id))


class AskUpstream(ApiView):
    """Have the other side asked once more. What it answers is told by the run's wait once a worker has asked it."""

    roles = {"POST": (OPERATOR,)}

    @described("Have the other side asked what became of a call", RunRow, status=202, body=DoubtBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        body = read_body(request, DoubtBody)
        upstream.ask(run_id, body.wait_id, justification=body.justification, by=self.by)
        return Response(one(run_id), status=202)
