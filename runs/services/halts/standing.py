"""Deadlines stand still while their run is under a halt: see runs/sql/halted_time.sql. What comes due is put
off here where another app has to do something about it."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction

from ledger.clock import database_now
from runs.journal import notify, wait_hooks
from runs.journal.database_errors import is_transient
from runs.models import Run, Stood, Wait
from runs.services.wakeups import NOTIFY_SQL

BATCH = 25
log = logging.getLogger("runs.services.halts")
# What a deadline may be put off by way of precaution.
MOST_AHEAD = timedelta(minutes=5)
_COUNT_FROM = """
    INSERT INTO runs_stood (id, run_id, at, until) SELECT %s, %s, %s, %s WHERE EXISTS (SELECT 1 FROM runs_halt)
    ON CONFLICT (id) DO UPDATE SET at = excluded.at, until = excluded.until"""


def stood_still(run_id: UUID, since: datetime, until: datetime) -> timedelta:
    """For how long a run stood still between two moments."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_stood_still(%s, %s, %s)", [run_id, since, until])
        stood: timedelta = cursor.fetchone()[0]
    return stood


def stretches(run_id: UUID, since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """When a run stood still between two moments, in their order: from when to when. None overlap."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT lower(s), upper(s) FROM runs_stood_during(%s, %s, %s) AS s", [run_id, since, until])
        return [(from_, to) for from_, to in cursor.fetchall()]


def ahead_of(wait: Wait) -> datetime | None:
    return Stood.objects.filter(pk=wait.pk).values_list("until", flat=True).first()


def is_past(wait: Wait, now: datetime) -> bool:
    """Whether a wait's time is over, also for whoever comes before it was put off. What was counted already is in its
    deadline."""
    if wait.deadline > now:
        return False
    since = max(wait.opened_at, ahead_of(wait) or wait.opened_at)
    return wait.deadline + stood_still(wait.run_id, since, now) <= now


def could_be_put_off(wait: Wait) -> timedelta:
    """By how much its deadline can have been put off since it was opened."""
    stood = stood_still(wait.run_id, wait.opened_at, wait.resolved_at or database_now())
    return stood + MOST_AHEAD if stood else stood


def put_off(wait: Wait) -> bool:
    """Put off a due wait whose run stood still: everything is locked. Whether it is not due any more."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_put_off(%s, %s, %s, %s)", [wait.id, wait.run_id, wait.opened_at, wait.deadline])
        (later,) = cursor.fetchone()
    if later is not None:
        moved(wait.id)
    return later is not None


def count_from(wait: Wait, now: datetime) -> None:
    """Its deadline was set anew, and runs from now on: what its run stood still before that is counted already."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_FROM, [wait.id, wait.run_id, now, now])


def is_halted(run_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_halted_by(%s, NULL) IS NOT NULL", [run_id])
        return bool(cursor.fetchone()[0])


def put_off_time(run: Run) -> bool:
    """The same for the time that a run was given."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_count_still(%s, %s, %s)", [run.pk, run.pk, run.counts_from])
        (later,) = cursor.fetchone()
    if later is None or run.time_up_at is None:
        return False
    run.time_up_at += later
    Run.objects.filter(pk=run.pk).update(time_up_at=run.time_up_at)
    return True


@transaction.atomic
def pull_back() -> int:
    """After a lift: deadlines that were put off by way of precaution are what they should be. Returns how many. Some at
    a time, as their runs' heads are held; one that can't be followed keeps no other from it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM runs_pull_back(%s)", [BATCH])
        waits = [wait_id for (wait_id,) in cursor.fetchall()]
    for wait_id in waits:
        try:
            with transaction.atomic():
                moved(wait_id)
        except Exception as error:
            if is_transient(error):
                raise
            log.exception("wait %s: what goes by its deadline could not follow it", wait_id)
    return len(waits)


def moved(wait_id: UUID) -> None:
    """Its deadline was put off, by what its run stood still: whoever keeps it beside the wait, or counts it by a
    calendar, is told."""
    wait = Wait.objects.get(pk=wait_id)
    if (follow := wait_hooks.on_moved.get(wait.kind)) is not None:
        follow(wait)


_LOCK = 7_231_065  # any number, the same in every process
LIFT_BATCH = 500
# One pass lasts no longer, however many there are: the same thread looks for dead workers.
PASS_SECONDS = 0.25


def let_go() -> int:
    """Let runs go on that nothing halts any more. Returns how many were looked at."""
    until, done = time.monotonic() + PASS_SECONDS, 0
    while (dealt_with := _let_go()) and time.monotonic() < until:
        done += dealt_with
    pull_back()
    return done + dealt_with


def _let_go() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_let_go(%s, %s)", [_LOCK, LIFT_BATCH])
        dealt_with = int(cursor.fetchone()[0])
    if dealt_with:
        notify.notify_after_commit(connection, NOTIFY_SQL)
    return dealt_with
