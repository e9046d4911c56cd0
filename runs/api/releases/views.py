"""Which versions an agent has and what each has under way, closing and opening one; and ramps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import NotFound
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.roles import OPERATOR
from ledger.web.seeing.viewers import viewer
from runs.api.once import answered_once
from runs.api.releases.shapes import FiguresRow, ForecastRow, RampPage, RampRow, VersionPage, VersionRow
from runs.engine.agents import registry
from runs.models import Ramp, VersionGate
from runs.queries.releases.standing import Ramped, Standing, ramped, ramped_all, ramps, versions_of
from runs.services.bodies import SteerBody
from runs.services.releases import acts
from runs.services.releases.bodies import RaiseBody, RampActBody, RampBody

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
    """A ramp as it is now."""
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
