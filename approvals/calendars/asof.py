"""Calendars and timings as the engine takes them: rows whose code was checked, as of the moment of reading."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, cast

from approvals.calendars.models import Calendar, Timing
from approvals.calendars.rows import row_of
from approvals.queue_models import Queue
from runs.engine.gate import calendars
from runs.engine.gate.timing import OnTimeout, QueueTiming, Step

log = logging.getLogger("approvals.timing")


def timings(told: Any) -> Mapping[str, QueueTiming]:
    """By the queue's name, of what the queues' statement gave (see queues/along.py). What none of our processes wrote
    counts as not said: around the clock, and a no when time runs out, is the strictest that there is."""
    found = {}
    for each in told:
        timing = row_of(Timing, each["timing"])
        calendar = None if each["calendar"] is None else row_of(Calendar, each["calendar"])
        if not timing.is_genuine:
            log.error(
                "the queue %s: what stands of its deadlines was not put there by this installation", each["queue"]
            )
            continue
        found[each["queue"]] = timing_of(timing, calendar)
    return found


def timing_of(row: Timing, calendar: Calendar | None) -> QueueTiming:
    """One of them."""
    known = calendar if calendar is not None and not calendar.is_removed else None
    if known is not None and not known.is_genuine:
        log.error("the calendar %s was not put there by this installation: nobody goes by it", known)
        known = None
    word = cast(OnTimeout, row.on_timeout) if row.on_timeout else None
    return QueueTiming(
        version=row.version, calendar=None if known is None else calendar_of(known), on_timeout=word,
        steps=tuple(Step(to, minutes) for to, minutes in row.steps), remind=tuple(row.remind), every=row.every,
        at_once_if_away=row.at_once_if_away,
    )  # fmt: skip


def calendar_of(row: Calendar) -> calendars.Calendar:
    """A version of a calendar as something to count with."""
    week = tuple(tuple((opens, closes) for opens, closes in shifts) for shifts in row.week)
    holidays = frozenset(date.fromisoformat(day) for day, _ in row.holidays)
    return calendars.Calendar(row.name, row.version, row.zone, week, holidays)


def recorded(terms: Mapping[str, Any]) -> calendars.Calendar | None:
    """The calendar that terms name, in just the version that counted when the question was put; None for around the
    clock, and where that version is not to be believed."""
    named = terms.get("calendar")
    if not named:
        return None
    row = Calendar.objects.filter(name=named["name"], version=named["version"]).first()
    return calendar_of(row) if row is not None and row.is_genuine else None


def newest(name: str) -> Calendar | None:
    """A calendar as it is now, if there is one."""
    row = Calendar.objects.filter(name=name).order_by("-version").first()
    return None if row is None or row.is_removed else row


def newest_timing(queue_id: int) -> Timing | None:
    """What a queue says of time now, if it says anything."""
    return Timing.objects.filter(queue=queue_id).order_by("-version").first()


def moment(text: str) -> datetime:
    """A moment of the terms."""
    return datetime.fromisoformat(text)


def escalating_to(name: str) -> list[str]:
    """The queues whose questions go to this one when nobody answered."""
    rows = Timing.objects.order_by("queue__name", "-version").distinct("queue__name").select_related("queue")
    return [
        row.queue.name for row in rows
        if row.queue.state != Queue.State.REMOVED and name in [to for to, _ in row.steps]
    ]  # fmt: skip
