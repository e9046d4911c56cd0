"""Calendars, deadlines and absences for pages and the API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now
from pydantic import Field

from approvals.account_words import hours_of, hours_typed
from approvals.queue_models import Queue
from approvals.versions import LOOKED_AT, newest_of
from durableagents.contrib.calendars import absences, hours, services
from durableagents.contrib.calendars.hours import DAYS, NoSuchTime
from durableagents.contrib.calendars.models import Absence, Calendar, Timing
from durableagents.contrib.calendars.texts import shifts_in_words
from durableagents.contrib.calendars.versions import calendar_of, current_calendars, current_timings
from ledger.append import mark_of
from ledger.web.fields import ActorName, IsAuthentic, Zone
from ledger.web.shapes import Shape
from ledger.zones import zone_of

MAX_SHOWN = 200
HOURS = 8.0  # default number of working hours in the preview


class HolidayRow(Shape):
    """A day without working hours."""

    day: date = Field(description="Date of the day.")
    name: str = Field(description="Name of the holiday.")


class ExampleRow(Shape):
    """A deadline in working hours for a question asked at a given time."""

    asked: datetime = Field(description="Time of the request.")
    due: datetime = Field(description="Its deadline.")
    what: str = Field(description="Situation that the example shows.")

    @property
    def asked_there(self) -> str:
        """Return the local time of the question. A template would show the server's time zone."""
        return f"{self.asked:%a %-d %b %Y %H:%M}"

    @property
    def due_there(self) -> str:
        return f"{self.due:%a %-d %b %Y %H:%M}"


class CalendarRow(Shape):
    """The current version of a business calendar."""

    name: str = Field(description="Name of the calendar.")
    version: int = Field(description="Number of the current version.")
    zone: Zone
    week: dict[str, str] = Field(
        description='Shifts by day: "09:00-12:00, 13:00-18:00"; empty if nobody works on that day.'
    )
    holidays: list[HolidayRow] = Field(description="Days without working hours.")
    used_by: list[str] = Field(description="Queues that use it.")
    preview: list[ExampleRow] = Field(
        description="Example deadlines after `hours` working hours (query parameter), or 8."
    )
    set_by: ActorName
    set_at: datetime = Field(description="Time when the version was set.")
    is_authentic: IsAuthentic

    @property
    def has_page(self) -> bool:
        return services.NAME.fullmatch(self.name) is not None

    @property
    def typed_holidays(self) -> str:
        """Return the holidays as the form shows them: one line per holiday with its day and name."""
        return "\n".join(f"{each.day} {' '.join(each.name.split())}" for each in self.holidays)

    @property
    def weekly(self) -> str:
        """Return the hours of a week as text."""
        return hours_of(sum(closes - opens for day in services.week_of(self.week) for opens, closes in day))


class CalendarName(Shape):
    """A calendar in the list."""

    name: str = Field(description="Name of the calendar.")
    version: int = Field(description="Number of the current version.")
    zone: Zone
    used_by: list[str] = Field(description="Queues that use it.")
    is_authentic: IsAuthentic


class AbsenceRow(Shape):
    """A person's period of absence."""

    id: int = Field(description="Id of the absence.")
    name: str = Field(description="User name of the absent person.")
    person: int = Field(description="Id of the account.")
    starts_at: datetime = Field(description="Start time.")
    ends_at: datetime = Field(description="End time.")
    reason: str = Field(description="Justification.")
    ended_at: datetime | None = Field(description="Time of an early end; null if there was none.")
    is_authentic: IsAuthentic

    @property
    def is_now(self) -> bool:
        return self.starts_at <= datetime.now(UTC)  # this host's clock is exact enough for display


def overview() -> list[CalendarRow]:
    """Return the current version of each calendar, without examples."""
    using: dict[str, list[str]] = {}
    for row in current_timings():
        if row.calendar:
            using.setdefault(row.calendar, []).append(row.queue.name)
    return [_calendar_row(row, using.get(row.name, []), []) for row in current_calendars()]


def calendar_row(row: Calendar, hours: float = HOURS) -> CalendarRow:
    """Return a calendar in full, with examples of deadlines in this many working hours."""
    found = examples(calendar_of(row), hours, datetime.now(UTC)) if row.is_authentic else []
    return _calendar_row(row, services.used_by(row.name), found)


def _calendar_row(row: Calendar, used_by: list[str], preview: list[ExampleRow]) -> CalendarRow:
    is_ours = row.is_authentic
    # a forged row may contain anything
    week, holidays = (row.week, row.holidays) if is_ours else ([[] for _ in DAYS], [])
    return CalendarRow.of(
        row,
        week={day: shifts_in_words(shifts) for day, shifts in zip(DAYS, week, strict=True)},
        holidays=[HolidayRow.of(None, day=day, name=name) for day, name in holidays],
        used_by=used_by,
        is_authentic=is_ours,
        preview=preview,
    )


def examples(calendar: hours.Calendar, hours: float, now: datetime) -> list[ExampleRow]:
    """Return examples of questions: asked now, on a Friday afternoon, at a weekend, and before a holiday."""
    zone, span = zone_of(calendar.zone), timedelta(minutes=round(hours * 60))
    today = now.astimezone(zone).date()
    friday = today + timedelta(days=(4 - today.weekday()) % 7 or 7)
    moments = [
        (now.replace(microsecond=0), "now"),
        (_at(friday, 16, zone), "on a Friday afternoon"),
        (_at(friday + timedelta(days=1), 12, zone), "at a weekend"),
    ]
    if (holiday := min((day for day in calendar.holidays if day > today), default=None)) is not None:
        moments.append((_at(holiday - timedelta(days=1), 16, zone), "before a holiday"))
    found = []
    for requested_at, what in moments:
        try:
            due = calendar.after(requested_at, span).astimezone(zone)
            found.append(ExampleRow.of(None, asked=requested_at.astimezone(zone), due=due, what=what))
        except NoSuchTime:
            continue
    return found


def _at(day: date, hour: int, zone: Any) -> datetime:
    return datetime.combine(day, time(hour), tzinfo=zone)


@dataclass(frozen=True, slots=True)
class ShownTiming:
    """A queue's timing for display.

    `row` is None if nothing authentic is set. `is_authentic` is false if any row was forged.
    """

    queue: Queue
    row: Timing | None = None
    calendar: Calendar | None = None
    calendars: Sequence[str] = ()
    absences: Sequence[AbsenceRow] = ()
    is_deserted: bool = False
    others: Sequence[str] = field(default_factory=tuple)
    is_authentic: bool = True

    @property
    def mark(self) -> str:
        return mark_of(services.form_values(self.row))

    @property
    def on_timeout(self) -> str:
        return self.row.on_timeout if self.row is not None else ""

    @property
    def steps(self) -> list[tuple[str, str]]:
        working = " in working time" if self.calendar is not None else ""
        return [(to, f"{hours_of(minutes)}{working}") for to, minutes in (self.row.steps if self.row else [])]

    def form(self, typed: Mapping[str, str] | None) -> dict[str, Any]:
        """Return the form's values: the refused input, or else the current settings.

        The form has room for three steps.
        """
        if typed is not None:
            steps = [(n, typed.get(f"to{n}", ""), typed.get(f"hours{n}", "")) for n in range(1, 4)]
            return {**typed, "steps": steps, "at_once": typed.get("at_once_if_away", "off") != "off"}
        given = [(to, hours_typed(minutes)) for to, minutes in (self.row.steps if self.row else [])]
        return {
            "calendar": "" if self.calendar is None else self.calendar.name,
            "on_timeout": self.on_timeout,
            "steps": [(n, *pair) for n, pair in enumerate([*given, ("", ""), ("", ""), ("", "")][:3], 1)],
            "remind": self.remind,
            "every_hours": self.every,
            "clock_stops_hours": self.clock_stops,
            "at_once": bool(self.row is not None and self.row.at_once_if_away),
        }

    @property
    def remind_words(self) -> str:
        return " and ".join(f"{share} %" for share in self.row.remind) if self.row is not None else ""

    @property
    def remind(self) -> str:
        """Return the reminder percentages in the form's input format."""
        return ", ".join(map(str, self.row.remind)) if self.row is not None else ""

    @property
    def every(self) -> str:
        return hours_typed(self.row.every) if self.row is not None and self.row.every else ""

    @property
    def clock_stops(self) -> str:
        return hours_typed(self.row.clock_stops) if self.row is not None and self.row.clock_stops else ""


_TIMING = f"""
    WITH newest AS (SELECT * FROM approvals_timing WHERE queue_id = %s ORDER BY version DESC LIMIT {LOOKED_AT})
    SELECT json_build_object(
        'there', {absences.PRESENCE_SQL},
        'timings', (SELECT coalesce(json_agg(to_json(t)::text ORDER BY t.version DESC), '[]') FROM newest t),
        'named', (SELECT coalesce(json_object_agg(n.calendar, c.told), '{{}}')
                  FROM (SELECT DISTINCT calendar FROM newest WHERE calendar <> '') n CROSS JOIN LATERAL (
                      SELECT coalesce(json_agg(to_json(c)::text ORDER BY c.version DESC), '[]') AS told FROM (
                          SELECT * FROM approvals_calendar c WHERE c.name = n.calendar
                          ORDER BY c.version DESC LIMIT {LOOKED_AT}) c) c),
        'calendars', (SELECT coalesce(json_agg(c.name ORDER BY c.name), '[]') FROM (
                          SELECT DISTINCT ON (name) name, is_removed FROM approvals_calendar
                          ORDER BY name, version DESC) c WHERE NOT c.is_removed),
        'others', (SELECT coalesce(json_agg(o.name ORDER BY o.name), '[]') FROM approvals_queue o
                   WHERE o.state = 'open' AND o.id <> q.id))::text
    FROM approvals_queue q WHERE q.id = %s"""


def timing_of(queue: Queue) -> ShownTiming:
    """Return a queue's timing and absences, in one statement."""
    with connection.cursor() as cursor:
        cursor.execute(_TIMING, [queue.pk, queue.pk])
        data = json.loads(cursor.fetchone()[0])
    row = newest_of(Timing, data["timings"])
    versions = data["named"].get(row.calendar, []) if row is not None else []
    newest, there = newest_of(Calendar, versions), absences.read_presence(data["there"])
    calendar = None if newest is None or newest.is_removed else newest
    calendar_names = {name for name in data["calendars"] if services.NAME.fullmatch(name)}
    calendar_names |= {calendar.name} if calendar is not None else set()
    return ShownTiming(
        queue,
        row,
        calendar,
        sorted(calendar_names),
        [AbsenceRow.of(each, name=name, is_authentic=each.is_authentic) for each, name in there.absences[:MAX_SHOWN]],
        there.is_deserted,
        data["others"],
        is_authentic=bool(row or not data["timings"]) and bool(newest or not versions),
    )


def absences_of(person: int | None) -> list[AbsenceRow]:
    """Return a person's own current and future absences."""
    if person is None:
        return []
    rows = Absence.objects.filter(person=person, ended_at__isnull=True, ends_at__gt=Now()).order_by("starts_at", "id")
    name = _name_of(person)
    return [AbsenceRow.of(row, name=name, is_authentic=row.is_authentic) for row in rows[:MAX_SHOWN]]


def absence_row(row: Absence) -> AbsenceRow:
    """Return the row of an absence, with the account's current name."""
    return AbsenceRow.of(row, name=_name_of(row.person), is_authentic=row.is_authentic)


def _name_of(person: int) -> str:
    return User.objects.filter(pk=person).values_list("username", flat=True).first() or ""
