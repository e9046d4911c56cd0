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
from ledger.web.fields import ActorName, Rows, RunId, Slot
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
    """The halt that holds the run."""

    kind: Kind = Field(description="halt, quarantine, or starts (new starts only).")
    scope: Scope = Field(description="Type of the scope.")
    key: str = Field(description="Name within the scope; empty for the whole installation.")
    by: ActorName
    why: str = Field(description="Justification for the halt.")
    since: datetime = Field(description="Time when it was set.")


class HearingRow(Shape):
    """A worker that has not confirmed the halt. `silent`: it sends no heartbeat, so its state is unknown."""

    worker: UUID = Field(description="Id of the process.")
    name: str = Field(description="Host and process.")
    says: Literal["stopping", "unheard", "silent"] = Field(
        description="stopping (its runs are stopping), unheard (no confirmation yet) or silent (no heartbeat)."
    )
    running: int = Field(description="Its runs in the scope that have not reached their next step.")


class InFlightRow(Shape):
    """A call that was sent before its scope was halted. Its result is still recorded."""

    run: RunId
    slot: Slot
    what: str = Field(description="Tool or model that is called.")
    since: datetime = Field(description="Time when the call was sent.")
    timeout: float = Field(description="Seconds until the call is given up.")
    worker: str = Field(description="Worker that sent it.")


class UnknownName(Shape):
    """A name in a halt that matches nothing known, now or earlier. The halt applies if something by that name
    appears."""

    scope: Scope = Field(description="Type of the scope.")
    key: str = Field(description="Name that matches nothing known.")
    like: list[str] = Field(description="Existing names of that kind, most similar first.")


class HaltRow(Shape):
    """A halt: nothing starts in its scope."""

    id: UUID = Field(description="Id of the halt.")
    kind: Kind = Field(description="halt, quarantine, or starts (new starts only).")
    scope: Scope = Field(description="Type of the scope.")
    key: str = Field(
        description="Name within the scope; for the whole installation empty, or the reason of a halt by the system."
    )
    refuse: bool = Field(description="New starts are refused instead of kept waiting.")
    state: Literal["requested", "confirmed", "lifted"] = Field(
        description="Requested until every live worker has confirmed that it starts nothing in the scope any "
        "more and that its runs there have stopped, except for calls in flight."
    )
    is_staged: bool = Field(description="Whether the halt is lifted for some runs.")
    share: str = Field(description="Percentage of the runs that it lets through.")
    agents: list[str] = Field(description="Agents whose runs it lets through.")
    tags: list[str] = Field(description="Tags whose runs it lets through.")
    revision: int = Field(description="Increases with each change of the halt.")
    by: ActorName
    why: str = Field(description="Justification for the halt.")
    since: datetime = Field(description="Time when it was set.")
    changed_by: str = Field(description="Actor of the last change.")
    changed_at: datetime = Field(description="Time of the last change.")
    unconfirmed: list[HearingRow] = Field(description="Live workers that have not confirmed it.")
    unknown: list[UnknownName] = Field(
        description="Names in the scope or in the exceptions that match nothing known, perhaps misspelt. Tags "
        "are included only for callers who may see all runs."
    )
    in_flight: list[InFlightRow] | None = Field(description="Null if you may not see all runs in the scope.")
    held: int | None = Field(description="Runs held by it, up to 10,001; null as with in_flight.")
    authentic: bool = Field(
        description="False: a row was not written by this installation. The halt is in force all the same."
    )


class HaltPage(Page):
    results: Rows[HaltRow]


_SETTERS = (OPERATOR,)


class Halts(ApiView):
    """Halts, newest first."""

    roles = {**READ, "POST": _SETTERS}

    @described("List halts", HaltPage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = halts(limit=query.limit + 1, beyond=after or None)
        return query.page(found, lambda one: {"after": str(one.began.pk)}, halt_row)

    @described("Halt a scope", HaltRow, status=201, body=HaltBody)
    def post(self, request: Request) -> Response:
        """Halt a scope: nothing starts in it until the halt is lifted."""
        halt = acts.begin(read_body(request, HaltBody), by=self.by)
        return Response(_one(halt.halt), status=201)


class OneHalt(ApiView):
    """One halt."""

    roles = READ

    @described("Get a halt", HaltRow)
    def get(self, request: Request, halt: UUID) -> Response:
        Query(request)
        return Response(_one(halt))


class HaltStage(ApiView):
    """Lift a halt for some runs, or apply it to them again."""

    roles = {"POST": _SETTERS}

    @described("Lift a halt in stages", HaltRow, body=StageBody)
    def post(self, request: Request, halt: UUID) -> Response:
        acts.find(halt)
        acts.stage(halt, read_body(request, StageBody), by=self.by)
        return Response(_one(halt))


class HaltLift(ApiView):
    """Lift a halt completely."""

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
    """Return the row of a halt."""
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
        authentic=one.is_authentic,
    )
