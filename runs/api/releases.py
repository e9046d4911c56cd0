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
from ledger.web.fields import ActorName, AgentName, AgentVersion, Rows
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

    ramp: int = Field(description="Id of the ramp.")
    is_new: bool = Field(description="Whether the ramp chose the newer version.")
    why: Literal["share", "tag", "halted", "unserved", "unknown"] = Field(
        description="Reason for the choice: the share, a tag, or why the newer version was not chosen."
    )


class ForecastRow(Shape):
    """Forecast of when the last active run of a version may end."""

    earliest: datetime | None = Field(description="By the usual duration of such runs.")
    latest: datetime | None = Field(
        description="By the duration of nearly all such runs; null: unknown, for the reason in `why`."
    )
    why: str = Field(description="Why the latest time is unknown; empty: it is known.")
    people: int = Field(description="Runs that wait for a person or are paused.")
    people_until: datetime | None = Field(description="Latest deadline of their waits.")
    time_up_at: datetime | None = Field(description="Time when all of them have reached their time cap.")


class VersionRow(Shape):
    """One version of an agent."""

    version: AgentVersion
    is_known: bool = Field(description="A process has, or had, this version.")
    is_closed: bool = Field(description="Closed to new starts.")
    closed_by: str | None = Field(description="Actor who closed it; null: it is open.")
    closed_at: datetime | None = Field(description="Time when it was closed; null: it is open.")
    why: str | None = Field(description="Justification for closing it; null: it is open.")
    served: bool = Field(description="Whether a live worker executes its runs.")
    workers: int = Field(description="Number of live workers that execute its runs.")
    begins: int = Field(description="Number of these workers that start runs; the others only finish existing ones.")
    living: int = Field(description="Active runs that you may see; counted up to 10,001 per state.")
    runs: dict[str, int] = Field(description="By state, each counted up to 10,001.")
    forecast: ForecastRow | None = Field(description="Null: no run is active, or you may not see all of them.")


class FiguresRow(Shape):
    """Figures over the newest runs that the ramp started on the newer version, up to 1,000."""

    begun: int = Field(description="Runs started.")
    failed: int = Field(description="Runs that failed.")
    rejected: int = Field(description="Runs with a rejected approval.")
    stopped: int = Field(description="Runs that stopped for an operator.")


class RampRow(Shape):
    """A gradual move of starts by an agent's name to another version."""

    id: int = Field(description="Id of the ramp.")
    agent: AgentName
    from_version: str = Field(description="Version that starts move away from.")
    to_version: str = Field(description="Newer version.")
    state: Literal["on", "halted", "rolled_back", "done"] = Field(description="on, halted, rolled_back or done.")
    share: str = Field(description="Percentage of the starts that go to the newer version.")
    tags: list[str] = Field(description="Tags whose runs start on the newer version.")
    bounds: dict[str, int | None] = Field(description="Percentages above which it halts; null: no bound.")
    at_least: int = Field(description="Number of runs started on the newer version before the bounds apply.")
    revision: int = Field(description="Increases with each change of the ramp.")
    set_by: ActorName
    made_at: datetime = Field(description="Time when it was created.")
    halted_at: datetime | None = Field(description="Time when it halted itself; null: it did not.")
    halted_by: dict[str, Any] | None = Field(
        description="Figures that halted it; only for callers who may see all runs."
    )
    ended_at: datetime | None = Field(description="Time when it was finished or rolled back; null: it is active.")
    figures: FiguresRow | None = Field(
        description="Current figures for the bounds; null: the ramp is over, or you may not see all its runs."
    )
    to_new: int | None = Field(description="Starts that went to the newer version, up to 10,001; null as with figures.")
    to_old: int | None = Field(
        description="Starts that stayed on the older version, up to 10,001; null as with figures."
    )


class RampPage(Page):
    results: Rows[RampRow]


class VersionPage(Page):
    """An agent's versions, newest first, and the active ramp."""

    results: Rows[VersionRow]
    ramp: RampRow | None = Field(description="The active ramp; null: none.")


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
        {"close": "Close a version to new starts", "open": "Open a version to new starts"},
        VersionRow,
        body=SteerBody,
        about={
            "close": "Refuse new starts of a version. Its existing runs continue.",
            "open": "Accept new starts of a closed version again.",
        },
    )
    def post(self, request: Request, name: str, version: str) -> Response:
        body = read_body(request, SteerBody)
        GATES[self.action](name, version, by=self.by, justification=body.justification)
        (one,) = _standing(name, only=version)
        return Response(version_row(one))


GATES: Mapping[str, Callable[..., VersionGate]] = {"close": acts.close, "open": acts.reopen}


class Ramps(ApiView):
    """Ramps, newest first."""

    roles = {**READ, "POST": _SETTERS}

    @described("List ramps", RampPage, query=("agent", "after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "agent", "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = ramps(query.text("agent") or "", limit=query.limit + 1, beyond=after or None)
        return query.page(ramped_all(found), lambda one: {"after": str(one.ramp.pk)}, _ramp_row)

    @described("Create a ramp", RampRow, status=201, body=RampBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        """Create a ramp: a gradual move of starts to another version."""
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
        about={
            "resume": "Let a halted ramp send starts to the newer version again.",
            "rollback": "End a ramp and close the newer version: all starts go to the older one.",
            "finish": "End a ramp: all starts go to the newer version.",
        },
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
    """Return an agent's versions and its ramp. Raises NotFound."""
    rows, ramp = [version_row(one) for one in _standing(agent)], acts.under_way(agent)
    return VersionPage.of(None, results=rows, next=None, ramp=None if ramp is None else ramp_row(ramp))


def _standing(agent: str, *, only: str = "") -> list[Standing]:
    found = versions_of(agent, [one.version for one in registry.versions(agent)], only=only)
    if not found:
        raise NotFound("agent", agent)
    return found


def version_row(one: Standing) -> VersionRow:
    """Return the row of a version."""
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
