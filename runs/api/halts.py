"""Set, list, stage and lift halts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import NotFound
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.roles import OPERATOR
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Page, Shape
from runs.models import Halt
from runs.queries.halts import Holding, halts, standing
from runs.services.halts import acts
from runs.services.halts.acts import HaltBody, LiftBody, StageBody

Kind = Literal["halt", "quarantine", "starts"]
Scope = Literal["all", "tag", "agent", "version", "tool", "provider"]


class HaltedRow(Shape):
    """The halt that a run is under."""

    kind: Kind
    scope: Scope
    key: str
    by: str
    why: str
    since: datetime


class HearingRow(Shape):
    """A worker that has not confirmed. `silent`: it gives no sign of life, so nobody knows what it does."""

    worker: UUID
    name: str = Field(description="Host and process.")
    says: Literal["stopping", "unheard", "silent"]
    running: int = Field(description="Of its runs in the scope, those that have not come to their next step.")


class InFlightRow(Shape):
    """A call that had left when its scope was halted. It may come back, and is recorded then."""

    run: UUID
    slot: str
    what: str
    since: datetime
    timeout: float = Field(description="Seconds, after which it is given up.")
    worker: str


class UnknownName(Shape):
    """A name that a halt gives and nothing here has, now or before: it holds what comes under it, and nothing yet."""

    scope: Scope
    key: str
    like: list[str] = Field(description="Names of that kind that there are, the most alike first.")


class HaltRow(Shape):
    """Nothing begins in its scope."""

    id: UUID
    kind: Kind
    scope: Scope
    key: str
    refuse: bool = Field(description="New starts are refused, and not only kept waiting.")
    state: Literal["requested", "confirmed", "lifted"] = Field(
        description="Requested until every living worker has said that it begins nothing there any more, and that its "
        "runs there stand still but for calls in flight."
    )
    is_staged: bool = Field(description="It is lifted for some.")
    share: str = Field(description="Per cent of the runs that it lets through.")
    agents: list[str] = Field(description="Whose runs it lets through.")
    tags: list[str] = Field(description="Runs with one of these it lets through.")
    revision: int
    by: str
    why: str
    since: datetime
    changed_by: str
    changed_at: datetime
    unconfirmed: list[HearingRow]
    unknown: list[UnknownName] = Field(
        description="Of what it halts, or lets through: names that nothing here has, perhaps misspelt. Of tags "
        "only whoever sees every run is told."
    )
    in_flight: list[InFlightRow] | None = Field(description="Null: it would tell of runs that aren't yours.")
    held: int | None = Field(description="Runs that are put aside for it, up to 10,001; null: as in_flight.")
    genuine: bool = Field(description="False: a row was not written by this installation. It holds all the same.")


class HaltPage(Page):
    results: list[HaltRow]


_SETTERS = (OPERATOR,)


class Halts(ApiView):
    """Halts, newest first; a POST sets one."""

    roles = {**READ, "POST": _SETTERS}

    @described("List halts", HaltPage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = halts(limit=query.limit + 1, beyond=after or None)
        return query.page(found, lambda one: {"after": str(one.began.pk)}, halt_row)

    @described("Halt a scope", HaltRow, status=201, body=HaltBody)
    def post(self, request: Request) -> Response:
        halt = acts.begin(read_body(request, HaltBody), by=self.by)
        return Response(_one(halt.halt), status=201)


class OneHalt(ApiView):
    roles = READ

    @described("A halt", HaltRow)
    def get(self, request: Request, halt: UUID) -> Response:
        Query(request)
        return Response(_one(halt))


class HaltStage(ApiView):
    """Lift it for some, or take that back."""

    roles = {"POST": _SETTERS}

    @described("Lift a halt in stages", HaltRow, body=StageBody)
    def post(self, request: Request, halt: UUID) -> Response:
        acts.find(halt)
        acts.stage(halt, read_body(request, StageBody), by=self.by)
        return Response(_one(halt))


class HaltLift(ApiView):
    roles = {"POST": _SETTERS}

    @described("Lift a halt", HaltRow, body=LiftBody)
    def post(self, request: Request, halt: UUID) -> Response:
        acts.find(halt)
        acts.lift(halt, read_body(request, LiftBody), by=self.by)
        return Response(_one(halt))


def _one(halt: UUID) -> HaltRow:
    found = standing([halt])
    if not found:
        raise NotFound("halt", halt)
    return halt_row(found[0])


def halt_row(one: Holding) -> HaltRow:
    """A halt of a list."""
    sees_all = viewer().sees_all
    return HaltRow.of(
        one.row,
        id=one.row.halt,
        tags=one.tags,
        refuse=one.row.refuses,
        state=one.state,
        is_staged=one.is_staged,
        share=one.share,
        revision=one.row.n,
        by=one.began.by,
        why=one.began.why,
        since=one.began.at,
        changed_by=one.row.by,
        changed_at=one.row.at,
        unconfirmed=[HearingRow.of(each) for each in one.unconfirmed],
        in_flight=[InFlightRow.of(each) for each in one.in_flight] if sees_all else None,
        unknown=[
            UnknownName.of(each, like=list(each.like))
            for each in one.unknown
            if sees_all or each.scope != Halt.Scope.TAG
        ],
        held=one.held if sees_all else None,
        genuine=one.is_genuine,
    )
