"""Extends deadlines while their run is halted.
The app for halts replaces the SQL hooks; without it no run is ever halted (runs/sql/hooks.sql)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.clock import database_now
from runs import features
from runs.models import Run, Wait

# Maximum time by which a deadline is extended in advance.
MAX_AHEAD = timedelta(minutes=5)


def stood_still(run_id: UUID, since: datetime, until: datetime) -> timedelta:
    """Return how long a run was halted between two points in time."""
    return sum((to - from_ for from_, to in stretches(run_id, since, until)), timedelta())


def stretches(run_id: UUID, since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return the intervals in which a run was halted between two points in time, in order and disjoint."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT lower(s), upper(s) FROM runs_stood_during(%s, %s, %s) AS s", [run_id, since, until])
        return [(from_, to) for from_, to in cursor.fetchall()]


def ahead_of(wait: Wait) -> datetime | None:
    """Return the time up to which halted time is already included in a wait's deadline; None if none is."""
    until: datetime | None = _call("runs_counted_until(%s)", wait.pk)
    return until


def is_past(wait: Wait, now: datetime) -> bool:
    """Return whether a wait's deadline has passed, including halted time that wasn't added to it yet."""
    if wait.deadline > now:
        return False
    since = max(wait.opened_at, ahead_of(wait) or wait.opened_at)
    return wait.deadline + stood_still(wait.run_id, since, now) <= now


def could_be_put_off(wait: Wait) -> timedelta:
    """Return the maximum time by which a wait's deadline can have been extended since it was opened."""
    stood = stood_still(wait.run_id, wait.opened_at, wait.resolved_at or database_now())
    return stood + MAX_AHEAD if stood else stood


def put_off(wait: Wait) -> bool:
    """Extend the deadline of a due wait whose run was halted.

    Needs all locks. Returns whether the wait is no longer due.
    """
    later = _call("runs_put_off(%s, %s, %s, %s)", wait.id, wait.run_id, wait.opened_at, wait.deadline)
    if later is not None:
        follow_deadline(wait.id)
    return later is not None


def count_from(wait: Wait, now: datetime) -> None:
    """Count halted time only from now on, because the wait has a new deadline."""
    _call("runs_count_from(%s, %s, %s)", wait.id, wait.run_id, now)


def is_halted(run_id: UUID) -> bool:
    """Return whether the whole run is halted, rather than single calls."""
    return _call("runs_halted_by(%s, NULL)", run_id) is not None


def put_off_time(run: Run) -> bool:
    """Extend a run's time limit by the halted time. Returns whether it was extended."""
    later = _call("runs_count_still(%s, %s, %s)", run.pk, run.pk, run.counts_from)
    if later is None or run.time_up_at is None:
        return False
    run.time_up_at += later
    Run.objects.filter(pk=run.pk).update(time_up_at=run.time_up_at)
    return True


def follow_deadline(wait_id: UUID) -> None:
    """Notify apps of an extended deadline, because they may keep a copy of it, or count it by a calendar."""
    wait = Wait.objects.get(pk=wait_id)
    if (follow := features.handler(lambda each: each.on_wait_moved, wait.kind)) is not None:
        follow(wait)


def _call(function: str, *arguments: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}", arguments)
        return cursor.fetchone()[0]
