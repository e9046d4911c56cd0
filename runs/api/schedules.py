"""Create, list, change, pause, resume and delete schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar
from uuid import UUID

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.api.present import masked
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.cursors import closed
from ledger.web.roles import INTEGRATOR, OPERATOR
from runs.api.once import answered_once
from runs.api.schemas import FiringRow, SchedulePage, ScheduleRow
from runs.models import Schedule
from runs.queries.schedules import Listed, listed, newest
from runs.services.bodies import ScheduleBody, SteerBody
from runs.services.budgets.starting import most_of
from runs.services.schedules import acts

_SETTERS = (OPERATOR, INTEGRATOR)


class Schedules(ApiView):
    """Schedules, newest first."""

    roles = {**READ, "POST": _SETTERS}

    @described("List schedules", SchedulePage, query=("cursor", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "cursor")
        found = newest(limit=query.limit + 1, beyond=query.moment())
        shown = {one.schedule.id: row_of(one) for one in listed(found[: query.limit])}
        return query.page(found, lambda one: {"cursor": closed(one.created_at, one.id)}, lambda one: shown[one.id])

    @described("Create a schedule", ScheduleRow, status=201, body=ScheduleBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        """Create a schedule. Its runs start with the caller's rights."""
        body = read_body(request, ScheduleBody)

        def create() -> tuple[int, ScheduleRow]:
            return 201, one(acts.create(body, by=self.by, most=most_of(request.auth)))

        return answered_once(request, {"schedule": request.data}, create)


class OneSchedule(ApiView):
    """One schedule with its next times and latest results."""

    versioned = True
    roles = {**READ, "POST": _SETTERS}

    @described("Get a schedule", ScheduleRow)
    def get(self, request: Request, schedule_id: UUID) -> Response:
        Query(request)
        return Response(one(acts.find(schedule_id)))

    @described("Update a schedule", ScheduleRow, body=ScheduleBody, name="schedules_update", headers=("If-Match",))
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Replace the settings of a schedule."""
        acts.check(acts.find(schedule_id), by=self.by)  # before the body is looked at
        body = read_body(request, ScheduleBody)
        return Response(one(acts.change(schedule_id, body, by=self.by, most=most_of(request.auth))))


class SteerSchedule(ApiView):
    """Pause, resume or delete a schedule. Runs that it started continue."""

    roles = {"POST": _SETTERS}
    action: ClassVar[str] = ""

    @described(
        {"pause": "Pause a schedule", "resume": "Resume a schedule", "delete": "Delete a schedule"},
        ScheduleRow,
        body=SteerBody,
        about={
            "pause": "Start no more runs until the schedule is resumed.",
            "resume": "Start runs at the planned times again.",
            "delete": "Delete a schedule. Runs that it started continue.",
        },
    )
    def post(self, request: Request, schedule_id: UUID) -> Response:
        acts.check(acts.find(schedule_id), by=self.by)  # before the body is looked at
        body = read_body(request, SteerBody)
        return Response(one(ACTS[self.action](schedule_id, by=self.by, justification=body.justification)))


ACTS: Mapping[str, Callable[..., Schedule]] = {"pause": acts.pause, "resume": acts.resume, "delete": acts.delete}


def one(schedule: Schedule) -> ScheduleRow:
    return row_of(listed([schedule])[0])


def row_of(found: Listed) -> ScheduleRow:
    """Return the row of a schedule."""
    last = [FiringRow.of(firing) for firing in found.last]
    is_read = acts.reads(found.schedule)
    return ScheduleRow.of(
        found.schedule,
        input=masked(found.schedule.input) if is_read else None,
        hidden=not is_read,
        next=found.next,
        last=last,
    )
