"""Create, list, change, pause, resume and delete schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar
from uuid import UUID

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from durableagents.contrib.schedules import services
from durableagents.contrib.schedules.models import Schedule
from durableagents.contrib.schedules.queries import SchedulePage, ScheduleRow, find, newest, rows_of
from durableagents.contrib.schedules.services import ScheduleBody
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.cursors import closed
from ledger.web.roles import INTEGRATOR, OPERATOR
from runs.api.once import answered_once
from runs.services.bodies import SteerBody
from runs.services.budgets.starting import most_of

_SETTERS = (OPERATOR, INTEGRATOR)


class Schedules(ApiView):
    """Schedules, newest first."""

    roles = {**READ, "POST": _SETTERS}

    @described("List schedules", SchedulePage, query=("cursor", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "cursor")
        rows = rows_of(newest(limit=query.limit + 1, beyond=query.moment()))
        return query.page(rows, lambda row: {"cursor": closed(row.created_at, row.id)}, lambda row: row)

    @described("Create a schedule", ScheduleRow, status=201, body=ScheduleBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        """Create a schedule. The schedule starts its runs with the caller's rights."""
        body = read_body(request, ScheduleBody)

        def create() -> tuple[int, ScheduleRow]:
            return 201, _row(services.create(body, by=self.by, most=most_of(request.auth)))

        return answered_once(request, {"schedule": request.data}, create)


class OneSchedule(ApiView):
    """One schedule, with its next times and latest results."""

    versioned = True
    roles = {**READ, "POST": _SETTERS}

    @described("Get a schedule", ScheduleRow)
    def get(self, request: Request, schedule_id: UUID) -> Response:
        Query(request)
        return Response(_row(find(schedule_id)))

    @described("Update a schedule", ScheduleRow, body=ScheduleBody, name="schedules_update", headers=("If-Match",))
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Replace the settings of a schedule."""
        services.check_may_change(find(schedule_id), by=self.by)  # checked before the body is read
        body = read_body(request, ScheduleBody)
        return Response(_row(services.change(schedule_id, body, by=self.by, most=most_of(request.auth))))


class SteerSchedule(ApiView):
    """Pause, resume or delete a schedule. Runs that the schedule has started continue."""

    roles = {"POST": _SETTERS}
    action: ClassVar[str] = ""
    operations: ClassVar[Mapping[str, Callable[..., Schedule]]] = {
        "pause": services.pause,
        "resume": services.resume,
        "delete": services.delete,
    }

    @described(
        {"pause": "Pause a schedule", "resume": "Resume a schedule", "delete": "Delete a schedule"},
        ScheduleRow,
        body=SteerBody,
        about={
            "pause": "Start no more runs until the schedule is resumed.",
            "resume": "Start runs at the planned times again.",
            "delete": "Delete a schedule. Runs that the schedule started continue.",
        },
    )
    def post(self, request: Request, schedule_id: UUID) -> Response:
        services.check_may_change(find(schedule_id), by=self.by)  # checked before the body is read
        body = read_body(request, SteerBody)
        return Response(_row(self.operations[self.action](schedule_id, by=self.by, justification=body.justification)))


def _row(schedule: Schedule) -> ScheduleRow:
    return rows_of([schedule])[0]
