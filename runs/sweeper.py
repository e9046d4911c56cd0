"""Everything that time alone brings about: timers, deadlines, orphans. Costs what is due, not what exists.

Every worker process sweeps; an advisory lock lets one do so at a time, and each due wait is its own transaction under the run's
locks, so a sweeper that dies half-way leaves nothing half-done.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime
from uuid import UUID

from django.db import OperationalError, connection, transaction

from ledger import events as e
from ledger.actors import SWEEPER, Actor
from ledger.append import append
from ledger.clock import database_now
from ledger.models import Event, Head
from runs import live, versions, waits
from runs.acts import locked, resolve, wake
from runs.models import ENDED, WITHOUT_PROOF, Run, Wait

log = logging.getLogger("runs.sweeper")
_LOCK = 7_231_001  # any number, the same in every process
BATCH = 200
IDLE_SECONDS = 1.0
TROUBLED_SECONDS = 30.0
# clock_timestamp() is volatile, so that the planner would compare it row by row and read all that is open; the statement's own time
# bounds the index scan, and each wait is looked at again under its locks.
DUE = """
    SELECT id, run_id FROM runs_wait
    WHERE resolved_at IS NULL AND NOT is_overdue AND deadline <= statement_timestamp() AND NOT (id = ANY(%s::uuid[]))
    ORDER BY deadline LIMIT %s"""
NEXT = """
    SELECT extract(epoch FROM deadline - clock_timestamp()) FROM runs_wait
    WHERE resolved_at IS NULL AND NOT is_overdue AND NOT (id = ANY(%s::uuid[])) ORDER BY deadline LIMIT 1"""
_RETIRE_IDEMPOTENCY = """
    DELETE FROM runs_idempotencyrecord WHERE id IN (
        SELECT id FROM runs_idempotencyrecord WHERE created_at < statement_timestamp() - interval '14 days' ORDER BY created_at LIMIT %s)"""
_troubled: dict[UUID, float] = {}


def sweep() -> float:
    """Act on what is due now. Returns the seconds until the next deadline, at most IDLE_SECONDS."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            return IDLE_SECONDS
        cursor.execute(
            "INSERT INTO runs_sweep (id, at) VALUES (1, clock_timestamp()) ON CONFLICT (id) DO UPDATE SET at = excluded.at WHERE runs_sweep.at < excluded.at - interval '1 second'"
        )
        cursor.execute(DUE, [_passed_over(), BATCH])
        due = cursor.fetchall()
    for wait_id, run_id in due:
        try:
            _expire(wait_id, run_id)
        except OperationalError:
            raise
        except Exception:
            # One run's trouble must not keep the others waiting: it is passed over for a while.
            log.exception("run %s: its wait %s is due and can't be acted on", run_id, wait_id)
            _troubled[wait_id] = time.monotonic() + TROUBLED_SECONDS
    return 0.0 if len(due) == BATCH else _seconds_to_next()


def _passed_over() -> list[UUID]:
    """Waits that could not be acted on lately."""
    now = time.monotonic()
    for wait_id in [w for w, until in _troubled.items() if until <= now]:
        del _troubled[wait_id]
    return list(_troubled)


def retire() -> None:
    """Forget what nothing refers to any more. Costs what there is to forget: the rows are found by time."""
    retire_processes()
    versions.forget_the_dead()
    retire_idempotency_records()


def retire_idempotency_records() -> int:
    """Forget answers that were kept for a repeat of their request: after two weeks nobody repeats it. Batch by batch."""
    total = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(_RETIRE_IDEMPOTENCY, [BATCH])
            total += cursor.rowcount
            if cursor.rowcount < BATCH:
                return total


def retire_processes() -> int:
    """Forget processes that ended more than a week ago; a run's own events keep who drove it. Not those that may still live."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM runs_process WHERE ended_at < clock_timestamp() - interval '7 days' AND NOT (end_cause = ANY(%s))",
            [[str(cause) for cause in WITHOUT_PROOF]],
        )
        return cursor.rowcount


def _seconds_to_next() -> float:
    with connection.cursor() as cursor:
        cursor.execute(NEXT, [_passed_over()])
        row = cursor.fetchone()
    return IDLE_SECONDS if row is None else min(IDLE_SECONDS, max(0.0, float(row[0])))


@transaction.atomic
def _expire(wait_id: UUID, run_id: UUID) -> None:
    """One wait's deadline has passed: look again under the locks, then do what its kind says."""
    head, run = locked(run_id, under=SWEEPER)
    wait = Wait.objects.select_for_update().get(pk=wait_id)
    now = database_now()
    if wait.resolved_at is not None or wait.deadline > now or run.state in ENDED:
        return
    waits.on_due.get(wait.kind, _remind)(head, run, wait, now, SWEEPER)


def _fire(head: Head, run: Run, wait: Wait, now: datetime, by: Actor, resolution: str = "fired") -> None:
    resolve(wait, resolution, by=by.ref, now=now)
    wake(run, now=now)
    event = e.WaitResolved(
        slot=wait.slot, attempt=wait.attempt, wait=wait.kind, n=wait.n, resolution=resolution, by=by.ref
    )
    live.ring(run.id, append(run.id, event, by=by))


def _time_out(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    _fire(head, run, wait, now, by, "timed_out")


def _give_up_on_callback(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """A callback's time runs from the acceptance of its call: until the other side has taken it, in an outage or under a pause, and
    while a person is asked what became of it, people are reminded, and nothing is given up."""
    call = {"slot": wait.slot, "attempt": wait.attempt}
    is_accepted = Event.objects.filter(run_id=run.id, fact="accepted", **call).exists()
    is_asked = run.waits.filter(kind=Wait.Kind.RECONCILE, resolved_at__isnull=True, **call).exists()
    (_time_out if is_accepted and not is_asked else _remind)(head, run, wait, now, by)


def _remind(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """What only a person can settle is never settled by time: it is overdue, and shown as such."""
    wait.is_overdue = True
    wait.save(update_fields=["is_overdue"])
    live.ring(run.id, head.seq)
    log.warning("run %s: its wait for %s is overdue since %s", run.id, wait.kind, wait.deadline.isoformat())


waits.on_due.update(timer=_fire, webhook=_give_up_on_callback, signal=_time_out, input=_time_out)


def last_sweep_age_seconds() -> float | None:
    """How long ago any process looked for what is due; None if none ever has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp() - at) FROM runs_sweep WHERE id = 1")
        row = cursor.fetchone()
    return None if row is None else float(row[0])
