"""Operations on many runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal
from uuid import UUID

from django.http import HttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from durableagents.contrib.bulk import services
from durableagents.contrib.bulk.models import Batch, BatchItem
from durableagents.contrib.bulk.queries import Progress, choose, items, newest, progress_of
from durableagents.contrib.bulk.services import BatchActBody, BatchBody
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.cursors import closed
from ledger.web.fields import ActorName, Reason, Rows, RunId
from ledger.web.roles import roles
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Page, Shape
from runs.api.once import answered_once
from runs.services import authority
from runs.services.budgets.starting import most_of


class BatchRow(Shape):
    """An operation on many runs."""

    id: UUID = Field(description="Id of the batch.")
    action: str = Field(description="Operation that it performs on each run.")
    state: Literal["draft", "running", "stopped", "done"] = Field(
        description="draft (previewed only), running, stopped or done."
    )
    said: dict[str, Any] = Field(
        description="Parameters: effects, priority, budget, verdict, sender_is_gone, and the SHA-256 of a receipt."
    )
    receipt: Any = Field(
        description="The receipt as given; shown until the batch is done, if the caller may read all payloads."
    )
    justification: Reason
    chosen: dict[str, Any] = Field(
        description="The filter that selected the runs, or a note that they were named. The set was fixed at creation."
    )
    total: int = Field(description="Number of runs.")
    done: int = Field(description="Runs on which the operation succeeded.")
    refused: int = Field(description="Runs that refused the operation.")
    failed: int = Field(
        description="Runs where the database kept refusing the operation, or an internal error occurred."
    )
    left: int = Field(description="Runs not processed yet; after a stop, runs that never will be.")
    forecast: dict[str, Any] = Field(
        description="Forecast at creation: runs by state, how many allow the operation, and which would be "
        "refused and why."
    )
    by: ActorName
    made_at: datetime = Field(description="Time of creation.")
    started_at: datetime | None = Field(description="Time when it was started; null before that.")
    stopped_at: datetime | None = Field(description="Time when it was stopped; null if it was not stopped.")
    stopped_by: str = Field(description="Actor who stopped it; empty: nobody.")
    ended_at: datetime | None = Field(description="Time when the last run was processed; null before that.")


class BatchPage(Page):
    results: Rows[BatchRow]


class BatchItemRow(Shape):
    """One run of a batch and its result."""

    n: int = Field(description="Number of the run in the batch, from 1.")
    run: RunId
    outcome: Literal["", "done", "refused", "failed"] = Field(description="Empty: not processed, or not processed yet.")
    code: str = Field(description="Stable code of a refusal or failure; empty: none.")
    why: str = Field(description="Reason for a refusal or failure; empty: none.")
    at: datetime | None = Field(description="Time when the run was processed; null before that.")


class BatchItemPage(Page):
    results: Rows[BatchItemRow]


def batch_row(one: Progress) -> BatchRow:
    """Return the row of a batch with its progress."""
    return BatchRow.of(
        one.batch,
        state=one.batch.state,
        done=one.done,
        refused=one.refused,
        failed=one.failed,
        left=one.left,
        receipt=one.batch.receipt if viewer().reads_all else None,
    )


def item_row(row: BatchItem) -> BatchItemRow:
    return BatchItemRow.of(row, run=row.run_id)


_LEFT = "left"  # the name of the filter for pending items in URLs


class Bulk(ApiView):
    """Operations on many runs, newest first. Only the caller's own, unless they may see all runs."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {**READ, "POST": authority.STOPPERS}

    @described("List batches", BatchPage, query=("cursor", "limit"))
    def get(self, request: Request) -> Response:
        query, user = Query(request, "cursor"), request.user
        rows = newest(person=user.pk, held=roles(user), limit=query.limit + 1, beyond=query.moment())
        fields = {one.batch.pk: one for one in progress_of(rows[: query.limit])}
        return query.page(
            rows, lambda batch: {"cursor": closed(batch.made_at, batch.pk)}, lambda batch: batch_row(fields[batch.pk])
        )

    @described("Create a batch", BatchRow, status=202, body=BatchBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        """Perform an operation on many runs. The permission is checked for each run; callers who may not act on any run
        are refused."""
        body, held = read_body(request, BatchBody), roles(request.user)
        services.check_requester(body.action, held)

        def make() -> tuple[int, BatchRow]:
            ids, how = choose(body)
            batch = services.create(body, ids, how, by=self.by, held=held, most=most_of(request.auth))
            return 202, batch_row(progress_of([batch])[0])

        return answered_once(request, {"bulk": request.data}, make)


class OneBulk(ApiView):
    """One batch."""

    roles = READ

    @described("Get a batch", BatchRow)
    def get(self, request: Request, batch_id: UUID) -> Response:
        Query(request)
        return Response(batch_row(progress_of([_find(request, batch_id)])[0]))


class BulkItems(ApiView):
    """The runs of a batch and their results."""

    roles = READ

    @described("List a batch's runs", BatchItemPage, query=("outcome", "after", "limit"))
    def get(self, request: Request, batch_id: UUID) -> Response:
        query = Query(request, "outcome", "after")
        after = query.integer("after", default=0, lowest=0, highest=2**31 - 1)
        outcome = query.choice("outcome", [*BatchItem.Outcome.values, _LEFT])
        wanted = "" if outcome == _LEFT else outcome
        rows = items(_find(request, batch_id), outcome=wanted, after=after, limit=query.limit + 1)
        return query.page(rows, lambda row: {"after": str(row.n)}, item_row)


class SteerBulk(ApiView):
    """Start a previewed batch, or stop one that is in progress."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {"POST": authority.STOPPERS}
    action: ClassVar[str] = ""

    @described(
        {"start": "Start a batch", "stop": "Stop a batch"},
        BatchRow,
        body=BatchActBody,
        about={
            "start": "Start a batch that was created as a preview.",
            "stop": "Stop a batch. Runs that the batch has not processed stay unchanged.",
        },
    )
    def post(self, request: Request, batch_id: UUID) -> Response:
        _find(request, batch_id)
        body = read_body(request, BatchActBody)
        batch = _OPERATIONS[self.action](
            batch_id, by=self.by, held=roles(request.user), justification=body.justification
        )
        return Response(batch_row(progress_of([batch])[0]))


_OPERATIONS: Mapping[str, Callable[..., Batch]] = {"start": services.start, "stop": services.stop}


def _find(request: Request, batch_id: UUID) -> Batch:
    return services.find(batch_id, person=request.user.pk, held=roles(request.user))
