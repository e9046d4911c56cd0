"""What time and the ends of others bring about for runs that have not begun, and for those that nobody has started yet:
whose turn it is, who came too late, which schedule is due. Costs what is due, not what exists.

django-q2's scheduler rings for a schedule at its planned time, and the message that it queues lets a worker process
look at that schedule. What no message came for is found here.
"""

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
# A message is on its way for so long; then nobody waits for it any more.
RUNG_SECONDS = 15.0
TROUBLED_SECONDS = 30.0
# Of one schedule that has much to make up for, before others have their turn.
IN_A_ROW = 20
_troubled: dict[UUID, float] = {}


def sweep() -> int:
    """Look for all of it. Returns of how many runs there was something to do, of the more frequent kind."""
    scheduler(broker=DoorbellBroker())
    fire(firing.waiting(for_seconds=RUNG_SECONDS, besides=_passed_over()))
    return max(
        timers.each(turns.ended, turns.pass_on, "it has ended, and others are queued behind it"),
        timers.each(turns.late, turns.give_up, "it was to have begun by now"),
    )


def fire(schedule_ids: Iterable[UUID]) -> int:
    """Start what is due of these schedules. One whose start fails stays due, says so, and keeps no other waiting.
    Returns how many planned times were dealt with."""
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
