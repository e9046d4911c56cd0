"""Calendars, deadlines and absences over HTTP."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from django.contrib.auth.models import User
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.queues import SetsUp
from approvals.deadlines import acts, away, listed
from approvals.deadlines.acts import AbsenceBody, CalendarBody, TimingBody
from approvals.models import Absence, Queue
from approvals.queues import acts as queue_acts
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.roles import EVERY
from ledger.web.shapes import Page, Shape
from runs.engine.gate.timing import LONGEST_WORK
from runs.services.bodies import SteerBody


class HolidayRow(Shape):
    """A day on which nobody works."""

    day: date
    name: str


class ExampleRow(Shape):
    """A question that is put at a moment, and when so many working hours are over."""

    asked: datetime
    due: datetime
    what: str


class CalendarRow(Shape):
    """A business calendar as it is now."""

    name: str
    version: int
    zone: str
    week: dict[str, str] = Field(description='Shifts by day: "09:00-12:00, 13:00-18:00"; empty: nobody works.')
    holidays: list[HolidayRow]
    used_by: list[str] = Field(description="Queues.")
    preview: list[ExampleRow] = Field(description="Of as many working hours as `hours` in the query says, or 8.")
    set_by: str
    set_at: datetime
    is_genuine: bool


class CalendarName(Shape):
    """A calendar in the list."""

    name: str
    version: int
    zone: str
    used_by: list[str]
    is_genuine: bool


class CalendarPage(Page):
    results: list[CalendarName]


class StepRow(Shape):
    """Whom a question is put to besides."""

    to: str
    hours: float


class AbsenceRow(Shape):
    """Who is away, from and until when."""

    id: int
    name: str
    person: int
    starts_at: datetime
    ends_at: datetime
    reason: str
    ended_at: datetime | None
    is_genuine: bool


class TimingRow(Shape):
    """What a queue says of time."""

    queue: str
    version: int = Field(description="0: nobody has set anything.")
    calendar: str = Field(description="Empty: around the clock.")
    on_timeout: str = Field(description="reject, escalate, remind; empty: as the gate says, and a no where it doesn't.")
    steps: list[StepRow]
    remind: list[int] = Field(description="Shares of the time in percent after which people are reminded.")
    every_hours: float | None = Field(description="The first interval of reminders of what waits for ever.")
    clock_stops_hours: float | None = Field(
        description="For how long the clock may stand at most while somebody named is asked. Null: it runs on."
    )
    at_once_if_away: bool
    is_deserted: bool = Field(description="Whether everybody who decides there is away, and nobody stands in.")
    absences: list[AbsenceRow] = Field(description="Now and to come.")
    is_genuine: bool


class Calendars(ApiView):
    """The calendars that there are, by name; and the place to add one, or a further version of one."""

    permission_classes = [SetsUp]
    roles = {**READ, "POST": ()}

    @described("List calendars", CalendarPage)
    def get(self, request: Request) -> Response:
        Query(request)
        rows = [
            CalendarName.of(each.row, used_by=list(each.used_by), is_genuine=each.is_genuine)
            for each in listed.overview()
        ]
        return Response({"results": rows, "next": None})

    @described("Set a calendar", CalendarRow, status=201, body=CalendarBody)
    def post(self, request: Request) -> Response:
        return Response(calendar_row(acts.set_calendar(read_body(request, CalendarBody), by=self.by)), status=201)


class OneCalendar(ApiView):
    permission_classes = [SetsUp]
    roles = READ

    @described("A calendar", CalendarRow, query=("hours",))
    def get(self, request: Request, calendar: str) -> Response:
        query = Query(request, "hours")
        most = int(LONGEST_WORK.total_seconds() // 3600)
        hours = query.integer("hours", default=int(listed.HOURS), lowest=1, highest=most)
        return Response(calendar_row(acts.find(calendar), hours))


class CalendarRemove(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Remove a calendar", CalendarRow, body=SteerBody)
    def post(self, request: Request, calendar: str) -> Response:
        acts.find(calendar)
        why = read_body(request, SteerBody).justification
        return Response(calendar_row(acts.remove_calendar(calendar, by=self.by, justification=why)))


class QueueTiming(ApiView):
    permission_classes = [SetsUp]
    roles = {**READ, "POST": ()}

    @described("What a queue says of time", TimingRow)
    def get(self, request: Request, queue: str) -> Response:
        Query(request)
        return Response(timing_row(queue_acts.find(queue)))

    @described("Set what a queue says of time", TimingRow, body=TimingBody, name="queues_timing_update")
    def post(self, request: Request, queue: str) -> Response:
        found = queue_acts.find(queue)
        acts.set_timing(queue, read_body(request, TimingBody), by=self.by)
        return Response(timing_row(found))


class Absences(ApiView):
    """Saying that somebody is away: oneself, or as an administrator anybody."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("Be away", AbsenceRow, status=201, body=AbsenceBody)
    def post(self, request: Request) -> Response:
        return Response(absence_row(away.leave(read_body(request, AbsenceBody), by=self.by)), status=201)


class AbsenceEnd(ApiView):
    """Ending an absence: the person, or an administrator, may."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("Be back", AbsenceRow, body=SteerBody)
    def post(self, request: Request, absence_id: int) -> Response:
        away.find(absence_id)
        why = read_body(request, SteerBody).justification
        return Response(absence_row(away.come_back(absence_id, by=self.by, justification=why)))


def calendar_row(row: Any, hours: float = listed.HOURS) -> CalendarRow:
    """A calendar whole."""
    shown = listed.one(row, hours)
    return CalendarRow.of(
        row,
        week=dict(shown.days),
        holidays=[HolidayRow.of(None, day=day, name=name) for day, name in shown.holidays],
        used_by=list(shown.used_by),
        is_genuine=shown.is_genuine,
        preview=[ExampleRow.of(None, asked=e.asked, due=e.due, what=e.what) for e in shown.examples],
    )


def timing_row(queue: Queue) -> TimingRow:
    """What a queue says of time now."""
    shown = listed.timing_of(queue)
    row = shown.row
    return TimingRow.of(
        None,
        queue=queue.name,
        version=row.version if row else 0,
        calendar=row.calendar if row else "",
        on_timeout=shown.on_timeout,
        is_deserted=shown.is_deserted,
        is_genuine=shown.is_genuine,
        steps=[StepRow.of(None, to=to, hours=minutes / 60) for to, minutes in (row.steps if row else [])],
        remind=row.remind if row else [],
        every_hours=row.every / 60 if row and row.every else None,
        clock_stops_hours=row.clock_stops / 60 if row and row.clock_stops else None,
        at_once_if_away=bool(row and row.at_once_if_away),
        absences=[AbsenceRow.of(a.row, name=a.name, is_genuine=a.is_genuine) for a in shown.absences],
    )


def absence_row(row: Absence) -> AbsenceRow:
    name = User.objects.filter(pk=row.person).values_list("username", flat=True).first() or ""
    return AbsenceRow.of(row, name=name, is_genuine=row.is_genuine)
