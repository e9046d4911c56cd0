"""Calendars, deadlines and absences over HTTP."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.queues import DeputyRow, SetsUp, deputy_row
from approvals.queue_models import Queue
from approvals.queues import acts
from durableagents.contrib.calendars import absences, deputies, queries, services
from durableagents.contrib.calendars.queries import AbsenceRow, CalendarName, CalendarRow, absence_row, calendar_row
from durableagents.contrib.calendars.services import AbsenceBody, CalendarBody, DeputyBody, TimingBody
from ledger.errors import NotFound
from ledger.web.api_base import READ, ApiView, Changed, Query, described, read_body
from ledger.web.fields import IsAuthentic, Rows
from ledger.web.roles import EVERY
from ledger.web.shapes import Page, Shape
from runs.engine.gating.timing import MAX_WORK
from runs.services.bodies import SteerBody


class CalendarPage(Page):
    results: Rows[CalendarName]


class StepRow(Shape):
    """An escalation step: the queue that is added."""

    to: str = Field(description="Queue that is added at this step.")
    hours: float = Field(description="Hours until the next step.")


class TimingRow(Shape):
    """Time settings of a queue."""

    queue: str = Field(description="Name of the queue.")
    version: int = Field(description="0: never set.")
    calendar: str = Field(description="Empty: around the clock.")
    on_timeout: str = Field(description="reject, escalate or remind; empty: as the gate specifies, otherwise reject.")
    steps: list[StepRow] = Field(description="Escalation steps, in order.")
    remind: list[int] = Field(description="Percentages of the time after which reminders are sent.")
    every_hours: float | None = Field(description="First interval of reminders for approvals without expiry.")
    clock_stops_hours: float | None = Field(
        description="Longest time for which an inquiry may pause the deadline. Null: it never does."
    )
    at_once_if_away: bool = Field(description="Whether an approval is escalated at once if everyone there is absent.")
    is_deserted: bool = Field(description="Whether everyone who decides there is absent without a deputy.")
    absences: list[AbsenceRow] = Field(description="Current and future absences.")
    is_authentic: IsAuthentic


class _OfCalendar(ApiView):
    permission_classes = [SetsUp]
    unversioned = frozenset({"preview"})  # example deadlines, counted from now

    def current(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        if "calendar" in kwargs:
            return calendar_row(services.find_calendar(kwargs["calendar"]))
        try:
            return calendar_row(services.find_calendar(read_body(request, CalendarBody).name))
        except NotFound:
            raise Changed from None


class Calendars(_OfCalendar):
    """Calendars by name."""

    roles = {**READ, "POST": ()}

    @described("List calendars", CalendarPage)
    def get(self, request: Request) -> Response:
        Query(request)
        rows = [CalendarName.of(each) for each in queries.overview()]
        return Response({"results": rows, "next": None})

    @described("Set a calendar", CalendarRow, status=201, body=CalendarBody, headers=("If-Match",))
    def post(self, request: Request) -> Response:
        """Create a calendar, or a new version of one."""
        return Response(calendar_row(services.set_calendar(read_body(request, CalendarBody), by=self.by)), status=201)


class OneCalendar(_OfCalendar):
    """One calendar, with example deadlines."""

    versioned = True
    roles = READ

    @described("Get a calendar", CalendarRow, query=("hours",))
    def get(self, request: Request, calendar: str) -> Response:
        query = Query(request, "hours")
        most = int(MAX_WORK.total_seconds() // 3600)
        hours = query.integer("hours", default=int(queries.HOURS), lowest=1, highest=most)
        return Response(calendar_row(services.find_calendar(calendar), hours))


class CalendarRemove(_OfCalendar):
    """Remove a calendar that no queue uses."""

    roles = {"POST": ()}

    @described("Remove a calendar", CalendarRow, body=SteerBody, headers=("If-Match",))
    def post(self, request: Request, calendar: str) -> Response:
        services.find_calendar(calendar)
        why = read_body(request, SteerBody).justification
        return Response(calendar_row(services.remove_calendar(calendar, by=self.by, justification=why)))


class QueueTiming(ApiView):
    """Time settings of a queue."""

    permission_classes = [SetsUp]
    versioned = True
    roles = {**READ, "POST": ()}

    @described("Get a queue's time settings", TimingRow)
    def get(self, request: Request, queue: str) -> Response:
        Query(request)
        return Response(timing_row(acts.find(queue)))

    @described(
        "Set a queue's time settings", TimingRow, body=TimingBody, name="queues_timing_update", headers=("If-Match",)
    )
    def post(self, request: Request, queue: str) -> Response:
        """Replace the time settings of a queue."""
        found = acts.find(queue)
        services.set_timing(queue, read_body(request, TimingBody), by=self.by)
        return Response(timing_row(found))


class Absences(ApiView):
    """Record an absence: the caller's own or, as an administrator, another person's."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("Record an absence", AbsenceRow, status=201, body=AbsenceBody)
    def post(self, request: Request) -> Response:
        return Response(absence_row(absences.record_absence(read_body(request, AbsenceBody), by=self.by)), status=201)


class AbsenceEnd(ApiView):
    """End an absence now. The person and administrators may do so."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("End an absence", AbsenceRow, body=SteerBody)
    def post(self, request: Request, absence_id: int) -> Response:
        absences.find(absence_id)
        why = read_body(request, SteerBody).justification
        return Response(absence_row(absences.end_absence(absence_id, by=self.by, justification=why)))


class Deputies(ApiView):
    """Name a deputy: the caller's own or, as an administrator, another person's."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("Name a deputy", DeputyRow, status=201, body=DeputyBody)
    def post(self, request: Request) -> Response:
        return Response(deputy_row(deputies.name_deputy(read_body(request, DeputyBody), by=self.by)), status=201)


class DeputyRevoke(ApiView):
    """End a deputyship now. The person represented, the deputy and administrators may do so."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("End a deputyship", DeputyRow, body=SteerBody)
    def post(self, request: Request, deputy_id: int) -> Response:
        deputies.find(deputy_id)
        why = read_body(request, SteerBody).justification
        return Response(deputy_row(deputies.end_deputyship(deputy_id, by=self.by, justification=why)))


def timing_row(queue: Queue) -> TimingRow:
    """Return the time settings of a queue that are in force."""
    timing = queries.timing_of(queue)
    row = timing.row
    return TimingRow.of(
        None,
        queue=queue.name,
        version=row.version if row else 0,
        calendar=row.calendar if row else "",
        on_timeout=timing.on_timeout,
        is_deserted=timing.is_deserted,
        is_authentic=timing.is_authentic,
        steps=[StepRow.of(None, to=to, hours=minutes / 60) for to, minutes in (row.steps if row else [])],
        remind=row.remind if row else [],
        every_hours=row.every / 60 if row and row.every else None,
        clock_stops_hours=row.clock_stops / 60 if row and row.clock_stops else None,
        at_once_if_away=bool(row and row.at_once_if_away),
        absences=list(timing.absences),
    )
