"""Find the calendars and queue timings in force: rows with a valid authentication code."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, cast

from approvals.queue_models import Queue
from approvals.versions import LOOKED_AT, Version, newest_of
from durableagents.contrib.calendars import hours
from durableagents.contrib.calendars.models import Calendar, Timing
from durableagents.contrib.calendars.terms import QueueTiming, Step
from runs.engine.gating.timing import OnTimeout

MAX_FORGED = 100  # how many versions of a calendar are searched if the newest are forged
log = logging.getLogger("durableagents.calendars")

# SQL expression for each queue's newest timings and the newest versions of their calendars. Only rows with a valid code
# count.
STATEMENT = f"""json_build_object(
    'queues', (SELECT coalesce(json_agg(json_build_array(q.name, t.told)), '[]')
        FROM approvals_queue q CROSS JOIN LATERAL (
            SELECT json_agg(to_json(t)::text ORDER BY t.version DESC) AS told FROM (
                SELECT * FROM approvals_timing t WHERE t.queue_id = q.id
                ORDER BY t.version DESC LIMIT {LOOKED_AT}) t) t
        WHERE q.state <> 'removed' AND t.told IS NOT NULL),
    'calendars', (SELECT coalesce(json_agg(json_build_array(n.calendar, c.told)), '[]')
        FROM (SELECT DISTINCT calendar FROM approvals_timing WHERE calendar <> '') n CROSS JOIN LATERAL (
            SELECT json_agg(to_json(c)::text ORDER BY c.version DESC) AS told FROM (
                SELECT * FROM approvals_calendar c WHERE c.name = n.calendar
                ORDER BY c.version DESC LIMIT {LOOKED_AT}) c) c
        WHERE c.told IS NOT NULL))"""


def read_timings(values: Any) -> Mapping[str, QueueTiming]:
    """Return timings by the name of the queue, from the result of STATEMENT. Forged rows count as missing."""
    known = {name: newest_of(Calendar, rows) for name, rows in values["calendars"]}
    found = {}
    for queue, rows in values["queues"]:
        timing = newest_of(Timing, rows)
        if timing is None:
            log.error("queue %s: its timing was not written by this installation and has no effect", queue)
            continue
        calendar = known.get(timing.calendar)
        if timing.calendar and (calendar is None or calendar.is_removed):
            what = "was not written by this installation" if calendar is None else "was removed"
            log.error("queue %s: its calendar %s %s, so every hour counts", queue, timing.calendar, what)
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


def calendar_of(row: Calendar) -> hours.Calendar:
    """Convert a calendar's version for computing times."""
    week = tuple(tuple((opens, closes) for opens, closes in shifts) for shifts in row.week)
    holidays = frozenset(date.fromisoformat(day) for day, _ in row.holidays)
    return hours.Calendar(row.name, row.version, row.zone, week, holidays)


def recorded_calendar(terms: Mapping[str, Any]) -> hours.Calendar | None:
    """Return the exact calendar version that the terms name.

    None if the time is counted around the clock, or if the version isn't authentic.
    """
    named = terms.get("calendar")
    if not named:
        return None
    row = Calendar.objects.filter(name=named["name"], version=named["version"]).first()
    return calendar_of(row) if row is not None and row.is_authentic else None


def latest_version(name: str) -> Calendar | None:
    """Return a calendar's newest authentic version, even if it is removed.

    If none is authentic, return the newest version, so that the reader notices the forgery.
    """
    return _counts(Calendar.objects.filter(name=name).order_by("-version")[:LOOKED_AT])


def current_calendar(name: str) -> Calendar | None:
    """Return a calendar as `latest_version` does; None if it is removed."""
    row = latest_version(name)
    return None if row is None or row.is_removed else row


def current_calendars() -> list[Calendar]:
    rows = list(Calendar.objects.order_by("name", "-version").distinct("name"))
    forged = [row.name for row in rows if not row.is_authentic][:MAX_FORGED]
    below = {name: _counts(Calendar.objects.filter(name=name).order_by("-version")[:LOOKED_AT]) for name in forged}
    found = [below.get(row.name) or row for row in rows]
    return [row for row in found if not row.is_removed]


def current_timing(queue_id: int) -> Timing | None:
    return _counts(Timing.objects.filter(queue=queue_id).order_by("-version")[:LOOKED_AT])


def _counts(rows: Iterable[Version]) -> Version | None:
    rows = list(rows)
    return next((row for row in rows if row.is_authentic), rows[0] if rows else None)


def current_timings() -> list[Timing]:
    """Return the authentic current timings, ordered by queue name."""
    rows = Timing.objects.exclude(queue__state=Queue.State.REMOVED).select_related("queue")
    newest = rows.order_by("queue__name", "-version").distinct("queue__name")
    found = [row if row.is_authentic else current_timing(row.queue_id) for row in newest]
    return [row for row in found if row is not None and row.is_authentic]


def uses_of(queue: str) -> str:
    """Return why other queues need this queue; "" if none does."""
    others = [row.queue.name for row in current_timings() if queue in [to for to, _ in row.steps]]
    return f"undecided requests of {', '.join(others)} are escalated to it" if others else ""
