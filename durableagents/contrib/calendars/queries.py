"""Calendars, deadlines and absences for pages and the API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now

from approvals.account_words import hours_of, hours_typed
from approvals.queue_models import Queue
from approvals.versions import LOOKED_AT, newest_of
from durableagents.contrib.calendars import absences, hours, services
from durableagents.contrib.calendars.hours import DAYS, NoSuchTime
from durableagents.contrib.calendars.models import Absence, Calendar, Timing
from durableagents.contrib.calendars.texts import shifts_in_words
from durableagents.contrib.calendars.versions import all_of_them, calendar_of, in_force
from ledger.append import mark_of
from ledger.zones import zone_of

MAX_SHOWN = 200
HOURS = 8.0  # of the preview, by default


@dataclass(frozen=True, slots=True)
class Example:
    """A question asked at a moment and its due time, both in the calendar's zone."""

    asked: datetime
    due: datetime
    what: str

    @property
    def asked_there(self) -> str:
        """Return the local time: a template would show the server's."""
        return f"{self.asked:%a %-d %b %Y %H:%M}"

    @property
    def due_there(self) -> str:
        return f"{self.due:%a %-d %b %Y %H:%M}"


@dataclass(frozen=True)
class ShownCalendar:
    """A calendar in full. `days` are pairs of a day and its shifts, as typed."""

    row: Calendar
    used_by: Sequence[str] = ()
    examples: Sequence[Example] = ()
    hours: float = HOURS

    @cached_property
    def is_authentic(self) -> bool:
        return self.row.is_authentic

    @property
    def mark(self) -> str:
        return mark_of(services.shown_of(self.row))

    @property
    def has_page(self) -> bool:
        return services.NAME.fullmatch(self.row.name) is not None

    @property
    def week(self) -> list[list[list[int]]]:
        """Return the week; empty for a forged calendar, whose values may be anything."""
        return self.row.week if self.is_authentic else [[] for _ in DAYS]

    @property
    def holidays(self) -> list[list[str]]:
        return self.row.holidays if self.is_authentic else []

    @property
    def days(self) -> list[tuple[str, str]]:
        return [(day, shifts_in_words(shifts)) for day, shifts in zip(DAYS, self.week, strict=True)]

    @property
    def typed_holidays(self) -> str:
        """Return the holidays as the form has them: a day and its name per line."""
        return "\n".join(f"{day} {' '.join(name.split())}" for day, name in self.holidays)

    @property
    def weekly(self) -> str:
        return hours_of(sum(closes - opens for shifts in self.week for opens, closes in shifts))


def overview() -> list[ShownCalendar]:
    using: dict[str, list[str]] = {}
    for row in in_force():
        if row.calendar:
            using.setdefault(row.calendar, []).append(row.queue.name)
    return [ShownCalendar(row, using.get(row.name, ())) for row in all_of_them()]


def one(row: Calendar, hours: float = HOURS, *, now: datetime | None = None) -> ShownCalendar:
    """Return a calendar in full, with examples of so many working hours."""
    found = examples(calendar_of(row), hours, now or datetime.now(UTC)) if row.is_authentic else []
    return ShownCalendar(row, services.used_by(row.name), found, hours)


def examples(calendar: hours.Calendar, hours: float, now: datetime) -> list[Example]:
    """Return examples: asked now, on a Friday afternoon, at a weekend, and before a holiday."""
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
    for asked, what in moments:
        try:
            found.append(Example(asked.astimezone(zone), calendar.after(asked, span).astimezone(zone), what))
        except NoSuchTime:
            continue
    return found


def _at(day: date, hour: int, zone: Any) -> datetime:
    return datetime.combine(day, time(hour), tzinfo=zone)


@dataclass(frozen=True, slots=True)
class ShownAbsence:
    """A current or future absence."""

    row: Absence
    name: str
    is_now: bool
    is_authentic: bool


@dataclass(frozen=True, slots=True)
class ShownTiming:
    """A queue's timing. `row` is None if nothing authentic is set; `is_authentic` is false if anything was forged."""

    queue: Queue
    row: Timing | None = None
    calendar: Calendar | None = None
    calendars: Sequence[str] = ()
    absences: Sequence[ShownAbsence] = ()
    is_deserted: bool = False
    others: Sequence[str] = field(default_factory=tuple)
    is_authentic: bool = True

    @property
    def mark(self) -> str:
        return mark_of(services.shown_of(self.row))

    @property
    def on_timeout(self) -> str:
        return self.row.on_timeout if self.row is not None else ""

    @property
    def steps(self) -> list[tuple[str, str]]:
        working = " in working time" if self.calendar is not None else ""
        return [(to, f"{hours_of(minutes)}{working}") for to, minutes in (self.row.steps if self.row else [])]

    def form(self, typed: Mapping[str, str] | None) -> dict[str, Any]:
        """Return the form's values: the refused input, else what is set. It has three places for steps."""
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
        """Return the reminder percentages as typed."""
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
        'there', {absences.AT_QUEUE},
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
        told = json.loads(cursor.fetchone()[0])
    row = newest_of(Timing, told["timings"])
    versions = told["named"].get(row.calendar, []) if row is not None else []
    newest, there = newest_of(Calendar, versions), absences.there_in(told["there"])
    calendar = None if newest is None or newest.is_removed else newest
    offered = {name for name in told["calendars"] if services.NAME.fullmatch(name)}
    offered |= {calendar.name} if calendar is not None else set()
    return ShownTiming(
        queue,
        row,
        calendar,
        sorted(offered),
        [_shown_one(each, name, there.now) for each, name in there.absences[:MAX_SHOWN]],
        there.is_deserted,
        told["others"],
        is_authentic=bool(row or not told["timings"]) and bool(newest or not versions),
    )


def absences_of(person: int | None) -> list[ShownAbsence]:
    """Return a person's own current and future absences."""
    return [] if person is None else _shown(Absence.objects.filter(person=person))


def _shown(rows: Any) -> list[ShownAbsence]:
    now = datetime.now(UTC)  # for display
    found = list(rows.filter(ended_at__isnull=True, ends_at__gt=Now()).order_by("starts_at", "id")[:MAX_SHOWN])
    people = [row.person for row in found]
    names = dict(User.objects.filter(pk__in=people).values_list("pk", "username")) if people else {}
    return [_shown_one(row, names.get(row.person, f"account {row.person}"), now) for row in found]


def _shown_one(row: Absence, name: str, now: datetime) -> ShownAbsence:
    return ShownAbsence(row, name, row.starts_at <= now, row.is_authentic)
