"""Calendars and timings for the engine: rows with a valid code, as of the moment of reading."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any, TypeVar, cast

from approvals.calendars.models import Calendar, Timing
from approvals.queue_models import Queue
from ledger.models import Coded
from ledger.rows import row_of
from runs.engine.gating import calendars
from runs.engine.gating.timing import OnTimeout, QueueTiming, Step

Version = TypeVar("Version", bound=Coded)
# Versions searched for an authentic one: forged ones, whatever their number, can't displace an administrator's.
LOOKED_AT = 5


def newest_of(model: type[Version], told: Iterable[Any]) -> Version | None:
    """Return the first authentic row of these, which are newest first."""
    return next((row for row in (row_of(model, each) for each in told) if row.is_authentic), None)


MAX_FORGED = 100  # forged calendars whose older versions are searched
HIGHEST = 2**31 - 1  # the highest version number
log = logging.getLogger("approvals.timing")


def timings(told: Any) -> Mapping[str, QueueTiming]:
    """Return timings by queue name from the queues' statement (queues/along.py). Forged rows count as missing."""
    known = {name: newest_of(Calendar, rows) for name, rows in told["calendars"]}
    found = {}
    for queue, rows in told["queues"]:
        timing = newest_of(Timing, rows)
        if timing is None:
            log.error("the queue %s: what stands of its deadlines was not put there by this installation", queue)
            continue
        calendar = known.get(timing.calendar)
        if timing.calendar and (calendar is None or calendar.is_removed):
            what = "was not put there by this installation" if calendar is None else "was removed"
            log.error("the queue %s: its calendar %s %s: it works around the clock", queue, timing.calendar, what)
        found[queue] = timing_of(timing, calendar)
    return found


def timing_of(row: Timing, calendar: Calendar | None) -> QueueTiming:
    known = calendar if calendar is not None and calendar.is_authentic and not calendar.is_removed else None
    word = cast(OnTimeout, row.on_timeout) if row.on_timeout else None
    return QueueTiming(
        version=row.version,
        calendar=None if known is None else calendar_of(known),
        on_timeout=word,
        steps=tuple(Step(to, minutes) for to, minutes in row.steps),
        remind=tuple(row.remind),
        every=row.every,
        at_once_if_away=row.at_once_if_away,
        clock_stops=row.clock_stops,
    )


def calendar_of(row: Calendar) -> calendars.Calendar:
    """Return a version of a calendar for arithmetic."""
    week = tuple(tuple((opens, closes) for opens, closes in shifts) for shifts in row.week)
    holidays = frozenset(date.fromisoformat(day) for day, _ in row.holidays)
    return calendars.Calendar(row.name, row.version, row.zone, week, holidays)


def recorded(terms: Mapping[str, Any]) -> calendars.Calendar | None:
    """Return the exact calendar version in the terms; None for around the clock, or if it isn't authentic."""
    named = terms.get("calendar")
    if not named:
        return None
    row = Calendar.objects.filter(name=named["name"], version=named["version"]).first()
    return calendar_of(row) if row is not None and row.is_authentic else None


def latest(name: str) -> Calendar | None:
    """Return a calendar's newest authentic version, even if removed; else the newest, so that a forgery is seen."""
    return _counts(Calendar.objects.filter(name=name).order_by("-version")[:LOOKED_AT])


def newest(name: str) -> Calendar | None:
    """Return a calendar as `latest` does; None if removed."""
    row = latest(name)
    return None if row is None or row.is_removed else row


def all_of_them() -> list[Calendar]:
    rows = list(Calendar.objects.order_by("name", "-version").distinct("name"))
    forged = [row.name for row in rows if not row.is_authentic][:MAX_FORGED]
    below = {name: _counts(Calendar.objects.filter(name=name).order_by("-version")[:LOOKED_AT]) for name in forged}
    found = [below.get(row.name) or row for row in rows]
    return [row for row in found if not row.is_removed]


def newest_timing(queue_id: int) -> Timing | None:
    return _counts(Timing.objects.filter(queue=queue_id).order_by("-version")[:LOOKED_AT])


def _counts(rows: Iterable[Version]) -> Version | None:
    rows = list(rows)
    return next((row for row in rows if row.is_authentic), rows[0] if rows else None)


def next_version(taken: Iterable[int], last: int) -> int | None:
    """Return the next version number, above all `taken` if possible; None if it would be outside LOOKED_AT."""
    taken = set(taken)
    top = max(taken, default=0)
    if top < HIGHEST:
        return top + 1
    number = last + 1
    while number in taken:
        number += 1
    return number if number < HIGHEST and sum(each > number for each in taken) < LOOKED_AT else None


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def in_force() -> list[Timing]:
    """Return the authentic current timings, ordered by queue name."""
    rows = Timing.objects.exclude(queue__state=Queue.State.REMOVED).select_related("queue")
    newest = rows.order_by("queue__name", "-version").distinct("queue__name")
    found = [row if row.is_authentic else newest_timing(row.queue_id) for row in newest]
    return [row for row in found if row is not None and row.is_authentic]


def escalating_to(name: str) -> list[str]:
    return [row.queue.name for row in in_force() if name in [to for to, _ in row.steps]]
