"""Rows of versions and ramps."""

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
    """The ramp that chose the run's version when it was started by the agent's name."""

    ramp: int
    is_new: bool = Field(description="Whether the ramp chose the newer version.")
    why: Literal["share", "tag", "halted", "unserved", "unknown"]


class ForecastRow(Shape):
    """Forecast of when the last active run of a version may end."""

    earliest: datetime | None = Field(description="By the usual duration of such runs.")
    latest: datetime | None = Field(
        description="By the duration of nearly all such runs; null: unknown, for the reason in `why`."
    )
    why: str
    people: int = Field(description="Runs that wait for a person or are paused.")
    people_until: datetime | None = Field(description="Latest deadline of their waits.")
    time_up_at: datetime | None = Field(description="Time when all of them have reached their time cap.")


class VersionRow(Shape):
    """One version of an agent."""

    version: str
    is_known: bool = Field(description="A process has, or had, this version.")
    is_closed: bool = Field(description="Closed to new starts.")
    closed_by: str | None
    closed_at: datetime | None
    why: str | None
    served: bool = Field(description="Whether a live worker executes its runs.")
    workers: int
    begins: int = Field(description="Number of these workers that start runs; the others only finish existing ones.")
    living: int = Field(description="Active runs that you may see; counted up to 10,001 per state.")
    runs: dict[str, int] = Field(description="By state, each counted up to 10,001.")
    forecast: ForecastRow | None = Field(description="Null: no run is active, or you may not see all of them.")


class FiguresRow(Shape):
    """Figures over the newest runs that the ramp started on the newer version, up to 1,000."""

    begun: int
    failed: int
    rejected: int
    stopped: int


class RampRow(Shape):
    """A gradual move of starts by an agent's name to another version."""

    id: int
    agent: str
    from_version: str
    to_version: str
    state: Literal["on", "halted", "rolled_back", "done"]
    share: str = Field(description="Percentage of the starts that go to the newer version.")
    tags: list[str]
    bounds: dict[str, int | None] = Field(description="Percentages above which it halts; null: no bound.")
    at_least: int = Field(description="Number of runs started on the newer version before the bounds apply.")
    revision: int
    set_by: str
    made_at: datetime
    halted_at: datetime | None
    halted_by: dict[str, Any] | None = Field(
        description="Figures that halted it; only for callers who may see all runs."
    )
    ended_at: datetime | None
    figures: FiguresRow | None = Field(
        description="Current figures for the bounds; null: the ramp is over, or you may not see all its runs."
    )
    to_new: int | None = Field(description="Starts that went to the newer version, up to 10,001; null as with figures.")
    to_old: int | None


class RampPage(Page):
    results: list[RampRow]


class VersionPage(Page):
    """An agent's versions, newest first, and the active ramp."""

    results: list[VersionRow]
    ramp: RampRow | None


_SETTERS = (OPERATOR,)


class Versions(ApiView):
    """An agent's versions, all on one page."""

    roles = READ

    @described("List an agent's versions", VersionPage)
    def get(self, request: Request, name: str) -> Response:
        Query(request)
        return Response(versions(name))


class SteerVersion(ApiView):
    """Close a version to new starts, or open it again. Its existing runs continue."""

    roles = {"POST": _SETTERS}
    action: ClassVar[str] = ""

    @described(
        {"close": "Close a version to new starts", "open": "Open a version to new starts"}, VersionRow, body=SteerBody
    )
    def post(self, request: Request, name: str, version: str) -> Response:
        body = read_body(request, SteerBody)
        GATES[self.action](name, version, by=self.by, justification=body.justification)
        (one,) = _standing(name, only=version)
        return Response(version_row(one))


GATES: Mapping[str, Callable[..., VersionGate]] = {"close": acts.close, "open": acts.reopen}


class Ramps(ApiView):
    """Ramps, newest first. POST creates one."""

    roles = {**READ, "POST": _SETTERS}

    @described("List ramps", RampPage, query=("agent", "after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "agent", "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = ramps(query.text("agent") or "", limit=query.limit + 1, beyond=after or None)
        return query.page(ramped_all(found), lambda one: {"after": str(one.ramp.pk)}, _ramp_row)

    @described("Create a ramp", RampRow, status=201, body=RampBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        body = read_body(request, RampBody)

        def begin() -> tuple[int, RampRow]:
            return 201, ramp_row(acts.begin(body, by=self.by))

        return answered_once(request, {"ramp": request.data}, begin)


class OneRamp(ApiView):
    """One ramp."""

    roles = READ

    @described("Get a ramp", RampRow)
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
    """Resume a halted ramp, roll a ramp back, or finish it."""

    roles = {"POST": _SETTERS}
    action: ClassVar[str] = ""

    @described(
        {"resume": "Resume a ramp", "rollback": "Roll back a ramp", "finish": "Finish a ramp"},
        RampRow,
        body=RampActBody,
    )
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
