"""Create, list, change and switch off pools, and list a run's pools."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.fields import ActorName, Rows, RunId, Slot, Zone
from ledger.web.roles import OPERATOR
from ledger.web.shapes import Page, Shape
from runs.api.once import answered_once
from runs.models import Pool, PoolNotice, Wait
from runs.queries.pools import Listed, find, listed, newest, of_run
from runs.services import lifecycle
from runs.services.bodies import PoolBody, PoolChangeBody, SteerBody
from runs.services.pools import acts

_SETTERS = (OPERATOR,)


class PoolWaitRow(Shape):
    """A call that waits for a pool."""

    run_id: RunId
    slot: Slot
    wanted: str | int = Field(description="Amount that the call needs.")
    since: datetime = Field(description="Time since which it waits.")
    deadline: datetime = Field(description="If the call is not admitted by then, its run ends as cancelled.")


class PoolPeriodRow(Shape):
    """A past period."""

    starts_at: datetime = Field(description="Start of the period.")
    ends_at: datetime = Field(description="End of the period.")
    limit: str | int = Field(description="Limit of the period.")
    used: str | int = Field(description="Amount used in the period.")
    reserved: str | int = Field(description="Amount still reserved in the period.")


class PoolNoticeRow(Shape):
    """A notification about the pool in this period: a warning at 80 percent, or a breach."""

    kind: PoolNotice.Kind = Field(description="Type of the notification.")
    at: datetime = Field(description="Time of the notification.")
    used: str | int = Field(description="Amount used at that time.")
    reserved: str | int = Field(description="Amount reserved at that time.")
    limit: str | int = Field(description="Limit at that time.")


class PoolRow(Shape):
    """A pool, its use in the current period, and the calls that wait for it. Dollars are strings, other amounts
    numbers."""

    id: int = Field(description="Id of the pool.")
    name: str = Field(description="Name of the pool.")
    scope: Pool.Scope = Field(description="Type of the scope.")
    whose: str = Field(description="Name of the tag, agent, person or provider; empty for all runs.")
    resource: str = Field(description="Resource that it limits.")
    period: Pool.Period = Field(description="Length of a period.")
    zone: Zone
    limit: str | int = Field(description="Limit per period.")
    used: str | int = Field(description="Amount used in this period.")
    reserved: str | int = Field(description="Amount reserved for calls without a recorded outcome.")
    left: str | int = Field(description="Amount neither used nor reserved.")
    starts_at: datetime = Field(description="Start of this period.")
    refills_at: datetime = Field(description="Start of the next period.")
    warned_at: datetime | None = Field(description="Time of this period's warning; null: none was sent.")
    waiting: int = Field(description="Number of calls that wait for it, counted up to 1,000.")
    waiting_first: list[PoolWaitRow] = Field(description="Calls next in line.")
    notices: list[PoolNoticeRow] = Field(description="Notifications of this period.")
    last: list[PoolPeriodRow] = Field(description="The latest past periods, newest first.")
    set_by: ActorName
    made_at: datetime = Field(description="Time when it was created.")
    off_at: datetime | None = Field(description="Time when it was switched off; null: it is active.")


class PoolPage(Page):
    results: Rows[PoolRow]


class Pools(ApiView):
    """Active pools, newest first."""

    roles = {**READ, "POST": _SETTERS}

    @described("List pools", PoolPage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = newest(limit=query.limit + 1, beyond=after or None)
        shown = {one.pool.pk: row_of(one) for one in listed(found[: query.limit])}
        return query.page(found, lambda pool: {"after": str(pool.pk)}, lambda pool: shown[pool.pk])

    @described("Create a pool", PoolRow, status=201, body=PoolBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        """Create a pool: a budget shared by all calls in a scope."""
        body = read_body(request, PoolBody)

        def create() -> tuple[int, PoolRow]:
            return 201, one(acts.create(body, by=self.by))

        return answered_once(request, {"pool": request.data}, create)


class OnePool(ApiView):
    """One pool with its use and waiting calls."""

    versioned = True
    roles = {**READ, "POST": _SETTERS}

    @described("Get a pool", PoolRow)
    def get(self, request: Request, pool_id: int) -> Response:
        Query(request)
        return Response(one(find(pool_id)))

    @described("Update a pool", PoolRow, body=PoolChangeBody, name="pools_update", headers=("If-Match",))
    def post(self, request: Request, pool_id: int) -> Response:
        """Change the limit or the name of a pool."""
        acts.find(pool_id)
        body = read_body(request, PoolChangeBody)
        return Response(one(acts.change(pool_id, body, by=self.by)))


class PoolOff(ApiView):
    """Switch a pool off permanently."""

    roles = {"POST": _SETTERS}

    @described("Switch off a pool", PoolRow, body=SteerBody)
    def post(self, request: Request, pool_id: int) -> Response:
        acts.find(pool_id)
        body = read_body(request, SteerBody)
        return Response(one(acts.switch_off(pool_id, by=self.by, justification=body.justification)))


class RunPools(ApiView):
    """Pools that the run belongs to or has drawn on, all on one page."""

    roles = READ

    @described("List a run's pools", PoolPage)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        rows = [row_of(each) for each in of_run(lifecycle.find(run_id))]
        return Response({"results": rows, "next": None})


def one(pool: Pool) -> PoolRow:
    return row_of(listed([pool])[0])


def row_of(found: Listed) -> PoolRow:
    """Return the row of a pool."""
    said = found.said
    return PoolRow.of(
        found.pool,
        whose=found.of,
        resource=found.resource,
        limit=said(found.most),
        used=said(found.used),
        reserved=said(found.reserved),
        left=said(found.left),
        starts_at=found.starts_at,
        refills_at=found.refills_at,
        warned_at=found.warned_at,
        waiting=found.waiting,
        waiting_first=[_wait_row(found, wait) for wait in found.first],
        notices=[
            PoolNoticeRow.of(row, used=said(row.used), reserved=said(row.reserved), limit=said(row.most))
            for row in found.notices
        ],
        last=[
            PoolPeriodRow.of(row, used=said(row.used), reserved=said(row.reserved), limit=said(row.most))
            for row in found.last
        ],
    )


def _wait_row(found: Listed, wait: Wait) -> PoolWaitRow:
    wanted: Any = wait.detail.get("wanted") if isinstance(wait.detail, dict) else None
    amount = wanted if isinstance(wanted, int) else 0
    return PoolWaitRow.of(wait, run_id=wait.run_id, wanted=found.said(amount), since=wait.opened_at)
