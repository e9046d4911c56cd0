"""Versions, ramps and migrations over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

from django.http import HttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from durableagents.contrib.releases import migrating, services
from durableagents.contrib.releases.migrating import MovedRow
from durableagents.contrib.releases.migration_requests import MigrateBody, MigrationPreviewBody
from durableagents.contrib.releases.models import Ramp, VersionGate
from durableagents.contrib.releases.queries import (
    RampRow,
    VersionRow,
    active_ramp,
    newest_ramps,
    ramp_row,
    ramp_rows,
    versions_of,
)
from durableagents.contrib.releases.services import RaiseBody, RampActBody, RampBody
from ledger.errors import NotFound
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.fields import Rows
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.shapes import Page, Shape
from runs.api.once import REPLAYED, answered_once
from runs.services import idempotency
from runs.services.bodies import SteerBody


class VersionPage(Page):
    """An agent's versions, newest first, and the active ramp."""

    results: Rows[VersionRow]
    ramp: RampRow | None = Field(description="The active ramp; null if there is none.")


class Versions(ApiView):
    """An agent's versions, all on one page."""

    roles = READ

    @described("List an agent's versions", VersionPage)
    def get(self, request: Request, name: str) -> Response:
        Query(request)
        rows, ramp = versions_of(name), active_ramp(name)
        if not rows:
            raise NotFound("agent", name)
        return Response(VersionPage.of(None, results=rows, next=None, ramp=None if ramp is None else ramp_row(ramp)))


class SteerVersion(ApiView):
    """Close a version to new starts, or open it again. Either way, the version's existing runs continue."""

    roles = {"POST": (OPERATOR,)}
    action: ClassVar[str] = ""
    acts: ClassVar[Mapping[str, Callable[..., VersionGate]]] = {
        "close": services.close_version,
        "open": services.open_version,
    }

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
        self.acts[self.action](name, version, by=self.by, justification=body.justification)
        (row,) = versions_of(name, only=version)
        return Response(row)


class RampPage(Page):
    results: Rows[RampRow]


class Ramps(ApiView):
    """Ramps, newest first."""

    roles = {**READ, "POST": (OPERATOR,)}

    @described("List ramps", RampPage, query=("agent", "after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "agent", "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = newest_ramps(query.text("agent") or "", limit=query.limit + 1, before=after or None)
        return query.page(ramp_rows(found), lambda row: {"after": str(row.id)}, lambda row: row)

    @described("Create a ramp", RampRow, status=201, body=RampBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        """Create a ramp: a gradual move of starts to another version."""
        body = read_body(request, RampBody)

        def create() -> tuple[int, RampRow]:
            return 201, ramp_row(services.create_ramp(body, by=self.by))

        return answered_once(request, {"ramp": request.data}, create)


class OneRamp(ApiView):
    """One ramp."""

    roles = READ

    @described("Get a ramp", RampRow)
    def get(self, request: Request, ramp_id: int) -> Response:
        Query(request)
        return Response(ramp_row(services.find_ramp(ramp_id)))


class RaiseRamp(ApiView):
    """Send more of the starts to the newer version."""

    roles = {"POST": (OPERATOR,)}

    @described("Raise a ramp's share", RampRow, body=RaiseBody)
    def post(self, request: Request, ramp_id: int) -> Response:
        services.find_ramp(ramp_id)
        return Response(ramp_row(services.raise_ramp(ramp_id, read_body(request, RaiseBody), by=self.by)))


class SteerRamp(ApiView):
    """Resume a halted ramp, roll a ramp back, or finish it."""

    roles = {"POST": (OPERATOR,)}
    action: ClassVar[str] = ""
    acts: ClassVar[Mapping[str, Callable[..., Ramp]]] = {
        "resume": services.resume_ramp,
        "rollback": services.roll_back_ramp,
        "finish": services.finish_ramp,
    }

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
        services.find_ramp(ramp_id)
        return Response(ramp_row(self.acts[self.action](ramp_id, read_body(request, RampActBody), by=self.by)))


class MovedRows(Shape):
    """The requested runs, in the order of the request."""

    results: Rows[MovedRow]


class MigrationPreviews(ApiView):
    """Preview the migration of runs without changing anything."""

    roles = {"POST": (OPERATOR, AUDITOR)}

    @described("Preview a migration", MovedRows, body=MigrationPreviewBody)
    def post(self, request: Request, name: str) -> Response:
        return _answer(migrating.preview(name, read_body(request, MigrationPreviewBody)))


class Migrations(ApiView):
    """Migrate runs, each in its own transaction.

    A repetition with the same `Idempotency-Key` covers the same runs: it migrates those that were refused or skipped,
    and returns the recorded results of the others."""

    roles = {"POST": (OPERATOR,)}

    @described("Migrate runs to another version", MovedRows, body=MigrateBody, headers=("Idempotency-Key",))
    def post(self, request: Request, name: str) -> Response:
        body = read_body(request, MigrateBody)
        key = idempotency.key_from(request.headers.get("Idempotency-Key"))
        if key is None:
            return _answer(migrating.migrate(name, body, by=self.by))
        assert request.user.pk is not None, "the view requires a role"
        rows, is_replayed = migrating.migrate_once(
            name, body, request.data, key=key, person=request.user.pk, by=self.by
        )
        return _answer(rows, REPLAYED if is_replayed else {})


def _answer(rows: list[MovedRow], headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    return Response(MovedRows.of(None, results=[row.for_viewer() for row in rows]), headers=dict(headers))
