"""Working hours by the local clock, summed in real time, so that no minute counts twice. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from ledger.zones import zone_of

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MINUTES = 24 * 60  # minutes of a day; as an end, midnight
LEAST = 60  # minimum working minutes of a week
MAX_SHIFTS = 6  # maximum number of shifts per day
MAX_DAYS = 40_000  # number of days searched: more than a century

# A shift's start and end, in minutes after midnight.
Shift = tuple[int, int]
Week = tuple[tuple[Shift, ...], ...]


class NoSuchTime(ValueError):
    """The calendar never has that much working time."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """Working hours by weekday (Monday first), and holidays. A version never changes."""

    name: str
    version: int
    zone: str
    week: Week
    holidays: frozenset[date] = field(default_factory=frozenset)

    def after(self, start: datetime, span: timedelta) -> datetime:
        """Return the time at which `span` of working time has passed. Raises NoSuchTime.

        If that falls between two shifts, it is the end of the first, not the start of the second.
        """
        left = span
        begun = start.astimezone(UTC)
        for opens, closes in self._shifts(begun):
            opens = max(opens, begun)
            if left <= closes - opens:
                return opens + left
            left -= closes - opens
        raise NoSuchTime(f"{span} of working time never pass in calendar {self.name}: it has too few working days")

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
        """Yield working time that ends after `since`, in UTC and without overlaps."""
        last = since
        for begins, ends in self._by_the_wall(since):
            begins = max(begins, last)
            if begins < ends:
                yield begins, ends
                last = ends

    def _by_the_wall(self, since: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield shifts by the local clock.

        At a clock change, a shift lasts from the first occurrence of its start time to the last of its end time. If
        the end is midnight, its first occurrence counts.
        """
        zone = zone_of(self.zone)
        day = since.astimezone(zone).date()
        for _ in range(MAX_DAYS):
            if day not in self.holidays:
                for opens, closes in self.week[day.weekday()]:
                    # An hour that is repeated at a clock change counts in full; an hour that is skipped doesn't count.
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
    # This time is skipped when the clocks go forward: both folds mean the instant of the change.
    gap = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    before, after = (offset or timedelta() for offset in gap)
    return _transition(local.replace(tzinfo=None, fold=0), before, after, zone)


def _transition(local: datetime, before: timedelta, after: timedelta, zone: ZoneInfo) -> datetime:
    """Return the instant of the clock change that skips a local time, found by bisection."""
    low, high = sorted([(local - before).replace(tzinfo=UTC), (local - after).replace(tzinfo=UTC)])
    while (seconds := (high - low) // timedelta(seconds=1)) > 1:
        middle = low + timedelta(seconds=seconds // 2)
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    return high


def problem_of(week: Week) -> str:
    """Return why these working hours are invalid; empty if they are valid."""
    if len(week) != len(DAYS):
        return "must name seven days"
    for day, shifts in zip(DAYS, week, strict=True):
        if len(shifts) > MAX_SHIFTS:
            return f"has more than {MAX_SHIFTS} shifts on {day}"
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
