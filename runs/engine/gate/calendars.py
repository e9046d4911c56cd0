"""Business calendars: which hours of which days somebody works, in a time zone, and when so much of that is over. Pure.

Hours are those of the wall clock there, time is what really passes: a shift over the night in which the clocks are put
forward is an hour shorter, one over the night in which they are put back an hour longer. No moment counts twice: where
an hour that there is twice belongs to two shifts, that touch or lie at a midnight, it passes once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MINUTES = 24 * 60  # of a day; as an end, its midnight
LEAST = 60  # minutes of work that a week has
MOST_SHIFTS = 6  # of a day
MOST_DAYS = 40_000  # that are looked through, over a century

_OF_A_MACHINE = ("right/", "posix/")

# From and until, in minutes after midnight.
Shift = tuple[int, int]
Week = tuple[tuple[Shift, ...], ...]


class NoSuchTime(ValueError):
    """So much working time never comes to its end."""


@lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """A time zone by its IANA name. Raises ValueError for one that there is not."""
    try:
        if not name or name.startswith((".", "/")) or "\x00" in name:
            raise ValueError(name)
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(f"{name!r} is no time zone by its IANA name, such as Europe/Berlin") from error


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """The names by which a zone may be set: those that mean the same zone everywhere. What a machine calls its own, or
    what counts leap seconds, is none of them."""
    no = ("localtime", "posixrules", "Factory")
    return frozenset(name for name in available_timezones() if name not in no and not name.startswith(_OF_A_MACHINE))


@dataclass(frozen=True, slots=True)
class Calendar:
    """Working hours by weekday (Monday first), and the days on which nobody works. One version of it never changes."""

    name: str
    version: int
    zone: str
    week: Week
    holidays: frozenset[date] = field(default_factory=frozenset)

    def after(self, start: datetime, span: timedelta) -> datetime:
        """When `span` of working time has passed since `start`: the moment itself in working time, never a later
        shift's beginning where the last one's end will do. Raises NoSuchTime."""
        left = span
        begun = start.astimezone(UTC)
        for opens, closes in self._shifts(begun):
            opens = max(opens, begun)
            if left <= closes - opens:
                return opens + left
            left -= closes - opens
        raise NoSuchTime(f"{span} of working time don't end in calendar {self.name}: it holds too few working days")

    def between(self, start: datetime, end: datetime) -> timedelta:
        begun, ends, sum_ = start.astimezone(UTC), end.astimezone(UTC), timedelta()
        for opens, closes in self._shifts(begun):
            if opens >= ends:
                break
            sum_ += max(timedelta(), min(closes, ends) - max(opens, begun))
        return sum_

    def is_open(self, at: datetime) -> bool:
        at = at.astimezone(UTC)
        first = next(self._shifts(at), None)
        return first is not None and first[0] <= at < first[1]

    def _shifts(self, since: datetime) -> Iterator[tuple[datetime, datetime]]:
        """The working time that isn't over at `since`, in UTC, one piece after the other: none overlap."""
        last = since
        for begins, ends in self._by_the_wall(since):
            begins = max(begins, last)
            if begins < ends:
                yield begins, ends
                last = ends

    def _by_the_wall(self, since: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Each shift by itself, from the first moment at which a clock there shows its beginning to the last at which
        it shows its end. A day ends as the next one begins, also where that midnight comes twice."""
        zone = zone_of(self.zone)
        day = since.astimezone(zone).date()
        for _ in range(MOST_DAYS):
            if day not in self.holidays:
                for opens, closes in self.week[day.weekday()]:
                    # An hour that there is twice counts whole; one that there is not, not at all.
                    ends = _moment(day, closes, zone, fold=int(closes != MINUTES))
                    if ends > since and (begins := _moment(day, opens, zone, fold=0)) < ends:
                        yield begins, ends
            if day >= date(9998, 12, 30):
                return
            day += timedelta(days=1)


def _moment(day: date, minutes: int, zone: ZoneInfo, *, fold: int) -> datetime:
    if minutes == MINUTES:
        day, minutes = day + timedelta(days=1), 0
    local = datetime(day.year, day.month, day.day, minutes // 60, minutes % 60, tzinfo=zone, fold=fold)
    found = local.astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return found
    # Skipped when the clocks were put forward: both folds stand for the moment at which that happened.
    gap = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    before, after = (offset or timedelta() for offset in gap)
    return _transition(local.replace(tzinfo=None, fold=0), before, after, zone)


def _transition(local: datetime, before: timedelta, after: timedelta, zone: ZoneInfo) -> datetime:
    """The moment at which a gap in the wall clock's hours is jumped over: between the two readings of an hour in it."""
    low, high = sorted([(local - before).replace(tzinfo=UTC), (local - after).replace(tzinfo=UTC)])
    while (seconds := (high - low) // timedelta(seconds=1)) > 1:
        middle = low + timedelta(seconds=seconds // 2)
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    return high


def wrong(week: Week) -> str:
    """Why these are no working hours, in words; empty where they are."""
    if len(week) != len(DAYS):
        return "names another number of days than seven"
    for day, shifts in zip(DAYS, week, strict=True):
        if len(shifts) > MOST_SHIFTS:
            return f"has more than {MOST_SHIFTS} shifts on {day}"
        last = 0
        for opens, closes in shifts:
            if not 0 <= opens < closes <= MINUTES:
                return f"has a shift on {day} that does not begin before its end, within the day"
            if opens < last:
                return f"has shifts on {day} that overlap or are out of order"
            last = closes
    if sum(closes - opens for shifts in week for opens, closes in shifts) < LEAST:
        return "has no working day: less than an hour in a week"
    return ""
