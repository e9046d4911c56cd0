"""Deferral of deadlines while their run is halted (runs/sql/halted_time.sql).
Due waits are deferred here where another app has to follow."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction

from ledger.clock import database_now
from runs import features
from runs.journal import notify
from runs.journal.database_errors import is_transient
from runs.models import Run, Stood, Wait
from runs.services.wakeups import NOTIFY_SQL

BATCH = 25
log = logging.getLogger("runs.services.halts")
# The most by which a deadline is deferred in advance.
MAX_AHEAD = timedelta(minutes=5)
_COUNT_FROM = """
    INSERT INTO runs_stood (id, run_id, at, until) SELECT %s, %s, %s, %s WHERE EXISTS (SELECT 1 FROM runs_halt)
    ON CONFLICT (id) DO UPDATE SET at = excluded.at, until = excluded.until"""


def stood_still(run_id: UUID, since: datetime, until: datetime) -> timedelta:
    """Return how long a run was halted between two moments."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_stood_still(%s, %s, %s)", [run_id, since, until])
        stood: timedelta = cursor.fetchone()[0]
    return stood


def stretches(run_id: UUID, since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return the intervals in which a run was halted between two moments, in order and disjoint."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT lower(s), upper(s) FROM runs_stood_during(%s, %s, %s) AS s", [run_id, since, until])
        return [(from_, to) for from_, to in cursor.fetchall()]


def ahead_of(wait: Wait) -> datetime | None:
    return Stood.objects.filter(pk=wait.pk).values_list("until", flat=True).first()


def is_past(wait: Wait, now: datetime) -> bool:
    """Return whether a wait's deadline has passed, with halted time that wasn't added to it yet."""
    if wait.deadline > now:
        return False
    since = max(wait.opened_at, ahead_of(wait) or wait.opened_at)
    return wait.deadline + stood_still(wait.run_id, since, now) <= now


def could_be_put_off(wait: Wait) -> timedelta:
    """Return by how much its deadline can have been deferred since it was opened."""
    stood = stood_still(wait.run_id, wait.opened_at, wait.resolved_at or database_now())
    return stood + MAX_AHEAD if stood else stood


def put_off(wait: Wait) -> bool:
    """Defer a due wait whose run was halted; needs all locks. Returns whether it is no longer due."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_put_off(%s, %s, %s, %s)", [wait.id, wait.run_id, wait.opened_at, wait.deadline])
        (later,) = cursor.fetchone()
    if later is not None:
        moved(wait.id)
    return later is not None


def count_from(wait: Wait, now: datetime) -> None:
    """Count halted time from now on for a wait with a new deadline."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_FROM, [wait.id, wait.run_id, now, now])


def is_halted(run_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_halted_by(%s, NULL) IS NOT NULL", [run_id])
        return bool(cursor.fetchone()[0])


def put_off_time(run: Run) -> bool:
    """Defer the end of a run's time limit by halted time. Returns whether it was deferred."""
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
    """After a lift, correct deadlines deferred in advance, in batches as heads are locked; returns how many."""
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
    """Notify apps that keep a copy of a wait's deadline, or count it by a calendar, that it was deferred."""
    wait = Wait.objects.get(pk=wait_id)
    if (follow := features.handler(lambda each: each.on_wait_moved, wait.kind)) is not None:
        follow(wait)


_LOCK = 7_231_065  # arbitrary, the same in every process
LIFT_BATCH = 500
# Limit of one pass: the same thread looks for dead workers.
PASS_SECONDS = 0.25


def let_go() -> int:
    """Release runs that are no longer halted; returns how many were checked."""
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
