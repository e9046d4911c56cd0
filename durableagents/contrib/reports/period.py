"""The period of a report: from one point in time (included) to another (excluded), in UTC. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

DEFAULT_DAYS = 30
MAX_DAYS = 400


class PeriodProblem(ValueError):
    """The period is invalid. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Period:
    """The time from `start` (included) to `end` (excluded)."""

    start: datetime
    end: datetime

    @property
    def days(self) -> float:
        return (self.end - self.start) / timedelta(days=1)

    def __str__(self) -> str:
        return f"{iso(self.start)} to {iso(self.end)}"


def read_period(start: str, end: str, now: datetime) -> Period:
    """Parse a period from two texts, which are days (the last one included) or times.

    Without an end, the period ends now. Without a start, the period covers the 30 days before its end. Raises
    PeriodProblem."""
    until = _moment("to", end, is_end=True) if end else now
    try:
        since = _moment("from", start, is_end=False) if start else until - timedelta(days=DEFAULT_DAYS)
    except OverflowError:
        raise PeriodProblem(f"`to` is {end[:40]!r}, which is too early: name a later day.") from None
    if since >= until:
        raise PeriodProblem(
            f"The period ends before it begins: `from` is {iso(since)} and `to` is {iso(until)}. Swap or change them."
        )
    if until - since > timedelta(days=MAX_DAYS):
        raise PeriodProblem(
            f"The period is {(until - since).days} days long, but at most {MAX_DAYS} are allowed: choose a shorter one."
        )
    return Period(since, until)


def _moment(name: str, text: str, *, is_end: bool) -> datetime:
    try:
        if len(text) <= 10:
            day = date.fromisoformat(text)
            return datetime.combine(day + timedelta(days=is_end), time(), UTC)
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise PeriodProblem(
            f"`{name}` is {text[:40]!r}, which is neither a day like 2026-11-21 nor a time like 2026-11-21T08:00Z."
        ) from None


def iso(at: datetime) -> str:
    """Return a time as ISO 8601 in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def last_complete(schedule: str, now: datetime) -> Period:
    """Return the last day, week (from Monday) or month that has ended."""
    today = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    match schedule:
        case "daily":
            return Period(today - timedelta(days=1), today)
        case "weekly":
            monday = today - timedelta(days=today.weekday())
            return Period(monday - timedelta(days=7), monday)
        case _:
            first = today.replace(day=1)
            return Period((first - timedelta(days=1)).replace(day=1), first)
