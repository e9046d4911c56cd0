"""What the API tells of versions and ramps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal

from django.http import HttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import NotFound
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.roles import OPERATOR
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Page, Shape
from runs.api.once import answered_once
from runs.engine.agents import registry
from runs.models import Ramp, VersionGate
from runs.queries.releases import Ramped, Standing, ramped, ramped_all, ramps, versions_of
from runs.services.bodies import SteerBody
from runs.services.releases import acts
from runs.services.releases.acts import RaiseBody, RampActBody, RampBody


class AssignedRow(Shape):
    """Where a ramp decided which version a run's start got."""

    ramp: int
    is_new: bool = Field(description="It got the newer side's.")
    why: Literal["share", "tag", "halted", "unserved", "unknown"]


class ForecastRow(Shape):
    """When the last run of a version that is under way may end."""

    earliest: datetime | None = Field(description="As such runs usually take.")
    latest: datetime | None = Field(description="As nearly all take; null: it can't be told, and `why` says why.")
    why: str
    people: int = Field(description="Runs that wait for a person, or are paused.")
    people_until: datetime | None = Field(description="The last deadline of what those wait for.")
    time_up_at: datetime | None = Field(description="When the time of all of them is up.")


class VersionRow(Shape):
    """One version of an agent."""

    version: str
    is_known: bool = Field(description="This process has it, or some process had.")
    is_closed: bool = Field(description="To new starts.")
    closed_by: str | None
    closed_at: datetime | None
    why: str | None
    served: bool = Field(description="A living worker drives its runs.")
    workers: int
    begins: int = Field(description="Of these, those that begin runs; the others only drain it.")
    living: int = Field(
        description="Of the runs that you see those that have not ended; of each state up to 10,001 are counted."
    )
    runs: dict[str, int] = Field(description="By state, each up to 10,001.")
    forecast: ForecastRow | None = Field(description="Null: none is under way, or you don't see all of them.")


class FiguresRow(Shape):
    """Of the newest runs that the ramp began on the newer version, up to 1,000."""

    begun: int
    failed: int
    rejected: int
    stopped: int


class RampRow(Shape):
    """Starts by an agent's name go over from one version to another."""

    id: int
    agent: str
    from_version: str
    to_version: str
    state: Literal["on", "halted", "rolled_back", "done"]
    share: str = Field(description="Per cent of the starts that go to the newer version.")
    tags: list[str]
    bounds: dict[str, int | None] = Field(description="Per cent above which it halts; null: whatever the figure is.")
    at_least: int = Field(description="Not before so many runs were begun on the newer version.")
    revision: int
    set_by: str
    made_at: datetime
    halted_at: datetime | None
    halted_by: dict[str, Any] | None = Field(description="The figures that halted it, for who sees all runs.")
    ended_at: datetime | None
    figures: FiguresRow | None = Field(
        description="What counts towards the bounds now; null: it is over, or you don't see all the runs it is of."
    )
    to_new: int | None = Field(description="Starts that it gave the newer version, up to 10,001; null: as figures.")
    to_old: int | None


class RampPage(Page):
    results: list[RampRow]


class VersionPage(Page):
    """An agent's versions, newest first, and the ramp that is under way."""

    results: list[VersionRow]
    ramp: RampRow | None


_SETTERS = (OPERATOR,)


class Versions(ApiView):
    """An agent's versions. Few, so one page."""

    roles = READ

    @described("List an agent's versions", VersionPage)
    def get(self, request: Request, name: str) -> Response:
        Query(request)
        return Response(versions(name))


class SteerVersion(ApiView):
    """Close a version to new starts, or open it: `action` comes from the route."""

    roles = {"POST": _SETTERS}
    action: ClassVar[str] = ""

    @described("Close a version to new starts, or open it", VersionRow, body=SteerBody)
    def post(self, request: Request, name: str, version: str) -> Response:
        body = read_body(request, SteerBody)
        GATES[self.action](name, version, by=self.by, justification=body.justification)
        (one,) = _standing(name, only=version)
        return Response(version_row(one))


GATES: Mapping[str, Callable[..., VersionGate]] = {"close": acts.close, "open": acts.reopen}


class Ramps(ApiView):
    """Ramps, newest first; a POST sets one."""

    roles = {**READ, "POST": _SETTERS}

    @described("List ramps", RampPage, query=("agent", "after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "agent", "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = ramps(query.text("agent") or "", limit=query.limit + 1, beyond=after or None)
        return query.page(ramped_all(found), lambda one: {"after": str(one.ramp.pk)}, _ramp_row)

    @described("Set a ramp", RampRow, status=201, body=RampBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        body = read_body(request, RampBody)

        def begin() -> tuple[int, RampRow]:
            return 201, ramp_row(acts.begin(body, by=self.by))

        return answered_once(request, {"ramp": request.data}, begin)


class OneRamp(ApiView):
    roles = READ

    @described("A ramp", RampRow)
    def get(self, request: Request, ramp_id: int) -> Response:
        Query(request)
        return Response(ramp_row(acts.find(ramp_id)))


class RaiseRamp(ApiView):
    """Send more of the starts to the newer version."""

    roles = {"POST": _SETTERS}

    @described("Raise a ramp's share", RampRow, body=RaiseBody)
    def post(self, request: Request, ramp_id: int) -> Response:
        acts.find(ramp_id)
        return Response(ramp_row(acts.raise_to(ramp_id, read_body(request, RaiseBody), by=self.by)))


class SteerRamp(ApiView):
    """Let a halted ramp go on, take one back, or finish it: `action` comes from the route."""

    roles = {"POST": _SETTERS}
    action: ClassVar[str] = ""

    @described("Let a ramp go on, take it back or finish it", RampRow, body=RampActBody)
    def post(self, request: Request, ramp_id: int) -> Response:
        acts.find(ramp_id)
        return Response(ramp_row(ACTS[self.action](ramp_id, read_body(request, RampActBody), by=self.by)))


ACTS: Mapping[str, Callable[..., Ramp]] = {
    "resume": acts.go_on,
    "rollback": acts.roll_back,
    "finish": acts.finish,
}


def versions(agent: str) -> VersionPage:
    """An agent's versions and its ramp, as they are now. Raises NotFound."""
    rows, ramp = [version_row(one) for one in _standing(agent)], acts.under_way(agent)
    return VersionPage.of(None, results=rows, next=None, ramp=None if ramp is None else ramp_row(ramp))


def _standing(agent: str, *, only: str = "") -> list[Standing]:
    found = versions_of(agent, [one.version for one in registry.versions(agent)], only=only)
    if not found:
        raise NotFound("agent", agent)
    return found


def version_row(one: Standing) -> VersionRow:
    """A version of a list."""
    gate: Any = one.gate if one.is_closed else None
    return VersionRow.of(
        one,
        served=one.is_served,
        begins=one.beginning,
        runs=one.counts,
        closed_by=gate and gate.set_by,
        closed_at=gate and gate.set_at,
        why=gate and gate.why,
        forecast=ForecastRow.of(one.forecast) if one.living and viewer().sees_all else None,
    )


def ramp_row(ramp: Ramp) -> RampRow:
    return _ramp_row(ramped(ramp))


def _ramp_row(found: Ramped) -> RampRow:
    ramp = found.ramp
    return RampRow.of(
        ramp,
        state=str(ramp.state),
        share=acts.percent(ramp.share),
        at_least=ramp.least,
        to_new=found.to_new,
        to_old=found.to_old,
        halted_by=ramp.halted_by if found.figures is not None else None,
        figures=FiguresRow.of(found.figures) if ramp.ended_at is None and found.figures is not None else None,
    )
