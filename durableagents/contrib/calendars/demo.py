"""Configure the demo's queue for refunds: a calendar, deadlines and a deputy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import partial

from durableagents.contrib.calendars.deputies import name_deputy
from durableagents.contrib.calendars.services import (
    CalendarBody,
    DeputyBody,
    Holiday,
    StepBody,
    TimingBody,
    set_calendar,
    set_timing,
)
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.models import ActRecord

QUEUE = "customer_refunds"
CALENDAR = "office"
_OFFICE = "09:00-17:00"
_DAYS_OFF = ((1, 1, "New Year"), (5, 1, "Labour Day"), (12, 25, "Christmas Day"), (12, 26, "Boxing Day"))


def demo_settings(*, by: Actor, justification: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each setting that is still missing, as its name and the function that adds it."""
    acts, now, why = ActRecord.objects, database_now(), justification
    done = set(acts.filter(queue=QUEUE).values_list("action", flat=True))
    if not acts.filter(subject=f"calendar {CALENDAR}").exists():
        years = (now.year, now.year + 1)
        days_off = [Holiday(day=date(year, month, day), name=name) for year in years for month, day, name in _DAYS_OFF]
        calendar = CalendarBody(
            name=CALENDAR,
            zone="Europe/Berlin",
            week={"mon": _OFFICE, "tue": _OFFICE, "wed": _OFFICE, "thu": _OFFICE, "fri": "09:00-15:00"},
            holidays=days_off,
            justification=why,
        )
        yield f"calendar {CALENDAR}", partial(set_calendar, calendar, by=by)
    if "queue_timing" not in done:
        timing = TimingBody(
            calendar=CALENDAR,
            on_timeout="escalate",
            steps=[StepBody(to="legal", hours=4)],
            remind=[50, 80],
            clock_stops_hours=8,
            justification=why,
        )
        yield "deadlines", partial(set_timing, QUEUE, timing, by=by)
    if "deputy" not in done:
        ends_at = now + timedelta(days=180)
        deputy = DeputyBody(deputy="operator", principal="treasurer", queue=QUEUE, ends_at=ends_at, justification=why)
        yield "deputy", partial(name_deputy, deputy, by=by)
