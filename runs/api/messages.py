"""API for messages that get an answer, and for views of the recorded state."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from ledger.api.present import masked
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.roles import INTEGRATOR, OPERATOR
from ledger.web.seeing.payloads import must_read
from ledger.web.seeing.viewers import reads
from runs.api.once import REPLAYED
from runs.api.schemas import RequestError, RequestPage, RequestRow, ViewRow
from runs.models import Message
from runs.services import idempotency, lifecycle
from runs.services.bodies import MessageBody
from runs.services.messages import reading, sending
from runs.services.messages.sending import MessageDetail, told_of


class OneMessage(ApiView):
    """One message, found by its number, with its result. The request can wait for the answer."""

    roles = {**READ, "POST": (INTEGRATOR, OPERATOR)}

    @described("Get a message and its answer", RequestRow, query=("wait",))
    def get(self, request: Request, run_id: UUID, name: str) -> Response:
        seconds = _seconds(request)
        lifecycle.find(run_id)
        (detail,) = told_of([sending.wait_for(sending.message(run_id, name), seconds)])
        return Response(request_row(detail, is_read=reads(run_id)))

    @described(
        "Send a message to a run",
        RequestRow,
        status=202,
        also=(200,),
        body=MessageBody,
        query=("wait",),
        headers=("Idempotency-Key",),
    )
    def post(self, request: Request, run_id: UUID, name: str) -> Response:
        """Send a message of the given name. The request can wait for the answer."""
        seconds = _seconds(request)
        key = idempotency.key_from(request.headers.get("Idempotency-Key"))
        lifecycle.find(run_id)
        body = read_body(request, MessageBody)
        sent = sending.send(run_id, name, body.body, by=self.by, sender_id=body.id or key)
        message = sending.wait_for(sent.message, seconds)
        where = {"Location": f"/api/v1/runs/{run_id}/messages/{message.n}"}
        where |= REPLAYED if key is not None and not sent.is_new else {}
        (detail,) = told_of([message])
        is_read = detail.row.by == self.by.ref or reads(run_id)
        return Response(request_row(detail, is_read=is_read), status=200 if message.outcome else 202, headers=where)


class Messages(ApiView):
    """Messages to a run, in order of arrival."""

    roles = READ

    @described("List a run's messages", RequestPage, query=("after", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**31 - 1)
        lifecycle.find(run_id)
        rows = list(Message.objects.filter(run_id=run_id, n__gt=after).order_by("n")[: query.limit + 1])
        present = partial(request_row, is_read=reads(run_id))
        return query.page(told_of(rows), lambda detail: {"after": str(detail.row.n)}, present)


def _seconds(request: Request) -> int:
    return Query(request, "wait").integer("wait", default=0, lowest=0, highest=sending.MAX_SECONDS)


class RunView(ApiView):
    """Evaluate one of the agent's views on the run's recorded state."""

    roles = READ

    @described("Read a view of a run", ViewRow)
    def get(self, request: Request, run_id: UUID, name: str) -> Response:
        Query(request)
        lifecycle.find(run_id)
        must_read(run_id)
        return Response(ViewRow(run=run_id, name=name, value=masked(reading.read(run_id, name))))


def request_row(detail: MessageDetail, *, is_read: bool = True) -> RequestRow:
    """Return the row of a message, with body and answer only if they may be read."""
    row, detail = detail.row, detail if is_read else detail.hidden
    return RequestRow.of(
        row,
        id=row.n,
        run=row.run_id,
        outcome=row.outcome or "waiting",
        body=detail.body,
        answer=detail.answer,
        hidden=not is_read,
        error=RequestError(code=detail.code, message=detail.why) if detail.is_no else None,
        sent_at=detail.sent_at,
        answered_at=detail.answered_at,
    )
