"""API for settling unknown outcomes."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.fields import Rows, Slot, ToolName
from ledger.web.roles import OPERATOR
from ledger.web.shapes import Shape
from runs import seen
from runs.api.present import load_run_row
from runs.api.schemas import RunRow
from runs.models import Run, Wait
from runs.queries.doubts import SimilarRow, link_of, similar_to
from runs.services import lifecycle, reconciling
from runs.services.bodies import DoubtBody, ReconcileBody
from runs.services.settling import agreeing, senders
from runs.services.settling.agreeing import Heard, heard, is_for_two


class DoubtRow(Shape):
    """A call of the run whose outcome is unknown."""

    wait_id: UUID = Field(description="Id of the wait, to be named in the verdict.")
    tool: ToolName
    slot: Slot
    needs_two: bool = Field(description="Whether two people must agree on its outcome.")
    can_ask: bool = Field(description="Whether the upstream system can be queried through the tool's hook now.")
    link: str | None = Field(description="Link into the upstream system, as given by the tool's author.")
    similar: dict[str, int] = Field(description="Verdicts on the newest similar calls, counted by verdict.")
    cases: list[SimilarRow] = Field(description="Similar calls, newest first.")


class UnknownOutcomes(Shape):
    """The unknown outcomes of a run, oldest first; at most twenty."""

    results: Rows[DoubtRow]


MAX_UNKNOWN = 20


class Reconcile(ApiView):
    """Unknown outcomes of a run, oldest first."""

    roles = {**READ, "POST": (OPERATOR,)}

    @described("List a run's unknown outcomes", UnknownOutcomes)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        run = lifecycle.find(run_id)
        open_ones = run.waits.filter(kind=Wait.Kind.RECONCILE, resolved_at__isnull=True)
        waits = list(open_ones.order_by("opened_at", "id")[:MAX_UNKNOWN])
        known, needs_two = heard(waits), is_for_two()
        is_read = run.erased_at is None and bool(seen.readable({run.pk: run.creator}))
        rows = [_row(run, wait, known[wait.pk], is_read=is_read, needs_two=needs_two) for wait in waits]
        return Response(UnknownOutcomes.of(run, results=rows))

    @described("Settle an unknown outcome", RunRow, also=(202,), body=ReconcileBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Settle an unknown outcome. If two people must settle the outcome, the first verdict is answered with 202."""
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
        return Response(load_run_row(run_id), status=200 if waits is None else 202)


class TakeBack(ApiView):
    """Withdraw the caller's own proposed verdict."""

    roles = {"POST": (OPERATOR,)}

    @described("Withdraw a proposed verdict", RunRow, body=DoubtBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        body = read_body(request, DoubtBody)
        agreeing.take_back(run_id, body.wait_id, justification=body.justification, by=self.by)
        return Response(load_run_row(run_id))


class AskUpstream(ApiView):
    """Query the upstream system again about a call. A worker does this and records the answer in the run's wait."""

    roles = {"POST": (OPERATOR,)}

    @described("Query the upstream system about a call", RunRow, status=202, body=DoubtBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        body = read_body(request, DoubtBody)
        senders.ask(run_id, body.wait_id, justification=body.justification, by=self.by)
        return Response(load_run_row(run_id), status=202)


def _row(run: Run, wait: Wait, known: Heard, *, is_read: bool, needs_two: bool) -> DoubtRow:
    found, link = similar_to(run, wait), link_of(run, wait) if is_read else None
    can_ask = senders.has_hook(run, wait) and not known.is_asked
    return DoubtRow.of(
        wait,
        wait_id=wait.pk,
        tool=found.tool,
        needs_two=needs_two,
        can_ask=can_ask,
        link=None if link is None else link.url,
        similar=found.counts,
        cases=found.cases,
    )
