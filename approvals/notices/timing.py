"""When somebody is told, and when it is tried again. Pure: no Django, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from runs.backoff import pause_seconds

MOST_TRIES = 16  # about ten hours
FIRST_SECONDS, LONGEST_SECONDS = 30.0, 3600.0
MOST_WAIT_SECONDS = 86_400.0  # of what a receiver asks for
# A deadline is near for the last quarter of its time, and no longer than a day; of what has to be decided at once it
# always is, so nothing is said of it.
NEAR_SHARE, NEAR_MOST, NEAR_LEAST = 4, timedelta(days=1), timedelta(hours=1)
# Whoever was told so often within an hour is told of the rest together, every quarter of one.
FLOOD, FLOOD_MINUTES = 20, 15


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When somebody wants to be told: not between `quiet_from` and `quiet_until` of their day, and with a digest
    (`hourly`, `daily`) at full hours or at `digest_at`."""

    zone: str = "UTC"
    quiet_from: time | None = None
    quiet_until: time | None = None
    digest: str = "none"
    digest_at: time = time(8)


def zone_of(name: str) -> tzinfo:
    """A time zone by its name; UTC for one that there isn't, as a row may say."""
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        return UTC


def told_at(rhythm: Rhythm, now: datetime) -> datetime:
    """When somebody is told of what happens now: `now` itself for at once."""
    local = now.astimezone(zone_of(rhythm.zone))
    at = local
    if rhythm.digest == "hourly":
        at = local.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    elif rhythm.digest == "daily":
        at = _next(local, rhythm.digest_at)
    begins, ends = rhythm.quiet_from, rhythm.quiet_until
    if begins is not None and ends is not None and _is_within(at.time(), begins, ends):
        at = _next(at, ends)
    return now if at is local else at.astimezone(UTC)


def _is_within(moment: time, begins: time, ends: time) -> bool:
    """Whether a time of day is quiet; a night goes over midnight."""
    return begins <= moment < ends if begins <= ends else moment >= begins or moment < ends


def _next(local: datetime, moment: time) -> datetime:
    """The next such time of day, by the clock on the wall: a night in which it is changed is as long as it is."""
    at = datetime.combine(local.date(), moment, tzinfo=local.tzinfo)
    return at if at > local else datetime.combine(local.date() + timedelta(days=1), moment, tzinfo=local.tzinfo)


def next_quarter(now: datetime) -> datetime:
    """When whoever is told much is told of it together."""
    start = now.replace(minute=now.minute - now.minute % FLOOD_MINUTES, second=0, microsecond=0)
    return start + timedelta(minutes=FLOOD_MINUTES)


def near_from(opened_at: datetime, deadline: datetime) -> datetime | None:
    """From when on a deadline is near. None: it is so all along."""
    whole = deadline - opened_at
    return None if whole < NEAR_LEAST else deadline - min(whole / NEAR_SHARE, NEAR_MOST)


def retry_seconds(tries: int, asked: float | None = None) -> float:
    """How long to wait after so many tries; at least as long as the receiver asked for, within reason."""
    own = pause_seconds(tries, first=FIRST_SECONDS, longest=LONGEST_SECONDS, spread=0.3)
    return max(own, min(asked or 0.0, MOST_WAIT_SECONDS))
