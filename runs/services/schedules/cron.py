"""A cron line, and the moments that it names in a time zone. Pure.

Five fields as crontab(5) has them: minute, hour, day of the month, month, day of the week; lists, ranges, steps and
names; where both days are restricted, either will do. A line names times of the wall clock. One that the clocks leave
out is taken by the offset from before, so 02:30 becomes 03:30; one that comes twice counts the first time. A line for
every hour goes by hours as they pass: it names none that is left out, and both of one that comes twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

# February 29 may be eight years away; what has not come by then never does.
_DAYS = 9 * 366
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_PART = re.compile(r"(\*|[0-9a-z]+(?:-[0-9a-z]+)?)(?:/([0-9]{1,2}))?")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...], int], ...] = (
    ("minute", 0, 59, (), 0),
    ("hour", 0, 23, (), 0),
    ("day of the month", 1, 31, (), 0),
    ("month", 1, 12, _MONTHS, 1),
    ("day of the week", 0, 7, _WEEKDAYS, 0),
)


class NoCron(ValueError):
    """A text that is no cron line, or one that never comes; says why."""


class NoZone(ValueError):
    """A name that is no time zone's."""


@dataclass(frozen=True, slots=True)
class Cron:
    """What a line names. `is_hourly`: every hour, or every so many."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_any_day: bool
    is_any_weekday: bool
    is_hourly: bool

    @classmethod
    def of(cls, line: str) -> Cron:
        """Read a line. Raises NoCron."""
        fields = _SHORT.get(line.strip().lower(), line).lower().split()
        if len(fields) != len(_FIELDS):
            raise NoCron(
                f"has {len(fields)} fields, not the five of a cron line: minute, hour, day, month, day of the week"
            )
        minutes, hours, days, months, weekdays = (
            _values(text, *field) for text, field in zip(fields, _FIELDS, strict=True)
        )
        return cls(
            tuple(sorted(minutes)),
            tuple(sorted(hours)),
            frozenset(days),
            frozenset(months),
            frozenset(day % 7 for day in weekdays),
            fields[2].startswith("*"),
            fields[4].startswith("*"),
            fields[1].startswith("*"),
        )

    def after(self, moment: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """The moments that it names after one, in their order, in UTC; for nine years."""
        first, last = moment.astimezone(zone).date() - timedelta(days=1), moment
        for n in range(_DAYS):
            day = first + timedelta(days=n)
            if not self._has(day):
                continue
            for named in self._moments(day, zone):
                if named > last:
                    last = named
                    yield named

    def _has(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_day and by_weekday) if self.is_any_day or self.is_any_weekday else (by_day or by_weekday)

    def _moments(self, day: date, zone: ZoneInfo) -> list[datetime]:
        found = set()
        for hour in self.hours:
            for minute in self.minutes:
                wall = datetime.combine(day, time(hour, minute))
                first, again = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
                is_left_out = first.astimezone(zone).replace(tzinfo=None) != wall
                if not (is_left_out and self.is_hourly):
                    found.add(first)
                if self.is_hourly and not is_left_out:
                    found.add(again)
        return sorted(found)


def _values(text: str, name: str, low: int, high: int, names: tuple[str, ...], base: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise NoCron(f"{name}: {part[:20]!r} is no value, range or step")
        span, step = match[1], int(match[2] or 1)
        if step == 0:
            raise NoCron(f"{name}: a step of 0 goes nowhere")
        first, dash, last = span.partition("-")
        if span == "*":
            start, end = low, high
        else:
            start = _number(first, name, low, high, names, base)
            end = _number(last, name, low, high, names, base) if dash else high if match[2] else start
        if start > end:
            raise NoCron(f"{name}: {span} runs backwards")
        found.update(range(start, end + 1, step))
    return found


def _number(text: str, name: str, low: int, high: int, names: tuple[str, ...], base: int) -> int:
    if text in names:
        return names.index(text) + base
    if not text.isdigit() or not low <= int(text[:6]) <= high:
        raise NoCron(f"{name}: {text[:20]!r} is not from {low} to {high}")
    return int(text)


def read(line: str) -> Cron:
    """A line that some day comes. Raises NoCron."""
    known = Cron.of(line)
    if next(known.after(datetime(2024, 1, 1, tzinfo=UTC), ZoneInfo("UTC")), None) is None:
        raise NoCron("never comes: no month of these has such a day")
    return known


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def zone_of(name: str) -> ZoneInfo:
    """A time zone by its name. Raises NoZone."""
    if name not in _zones():
        raise NoZone(f"{name[:60]!r} is no time zone")
    return ZoneInfo(name)
