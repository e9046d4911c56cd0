"""Start what is due: queued runs, late starts, schedules; costs what is due, not what exists.
Schedules normally start by django-q2's message at the planned time; those without one are found here."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from uuid import UUID

from django_q.scheduler import scheduler

from ledger.errors import first_line
from runs.journal.database_errors import is_refusal, is_transient
from runs.models import Schedule
from runs.services.schedules import firing
from runs.services.starts import turns
from runs.workers import timers
from runs.workers.q2_broker import DoorbellBroker

log = logging.getLogger("runs.workers.starts")
# A message may take this long; then it isn't waited for.
RUNG_SECONDS = 15.0
TROUBLED_SECONDS = 30.0
# Missed times of one schedule in a row, before others have their turn.
IN_A_ROW = 20
_troubled: dict[UUID, float] = {}


def sweep() -> int:
    """Check for all of it; return how many runs the more frequent checks found."""
    scheduler(broker=DoorbellBroker())
    fire(firing.waiting(for_seconds=RUNG_SECONDS, besides=_passed_over()))
    return max(
        timers.each(turns.ended, turns.pass_on, "it has ended, and others are queued behind it"),
        timers.each(turns.late, turns.give_up, "it was to have begun by now"),
    )


def fire(schedule_ids: Iterable[UUID]) -> int:
    """Start what is due of these schedules, leaving failures due; returns how many times were handled."""
    return sum(_fire(schedule_id) for schedule_id in schedule_ids)


def _fire(schedule_id: UUID) -> int:
    try:
        for n in range(IN_A_ROW):
            if not firing.fire(schedule_id):
                return n
    except Exception as error:
        if is_transient(error) and not is_refusal(error):
            raise
        log.exception("schedule %s: it is due, and can't be started; trying again", schedule_id)
        _troubled[schedule_id] = time.monotonic() + TROUBLED_SECONDS
        Schedule.objects.filter(pk=schedule_id).update(trouble=first_line(error)[:2000])
        return 0
    return IN_A_ROW


def _passed_over() -> list[UUID]:
    now = time.monotonic()
    for schedule_id in [one for one, until in _troubled.items() if until <= now]:
        del _troubled[schedule_id]
    return list(_troubled)
