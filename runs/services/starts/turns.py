"""Queued runs of a business key.
Starts the next one when a run ends, and cancels those that are too late to begin. This happens after the end was
committed, or in the sweeper."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

from django.db import connection, transaction

from ledger import events as e
from ledger.actors import SWEEPER, Actor
from ledger.clock import database_now
from ledger.errors import RecordDamaged
from runs.models import ENDED, Run, State
from runs.services.command import end_as_cancelled, journal, locked, make_ready, save
from runs.services.starts import keys

log = logging.getLogger("runs.services.starts")
TURNS = Actor(kind="system", name="turns")
BATCH = 200
_ENDED = """
    SELECT id FROM runs_run
    WHERE business_key <> '' AND ended_at IS NOT NULL AND NOT is_passed_on AND NOT (id = ANY(%s::uuid[]))
    ORDER BY ended_at LIMIT %s"""
_LATE = """
    SELECT id FROM runs_run
    WHERE start_before <= statement_timestamp() AND started_at IS NULL AND ended_at IS NULL
      AND NOT (id = ANY(%s::uuid[]))
    ORDER BY start_before LIMIT %s"""


def ended(*, excluding: Iterable[UUID] = ()) -> list[UUID]:
    """Return ended runs with a key whose next queued run was not started yet, oldest first."""
    return _ids(_ENDED, excluding)


def late(*, excluding: Iterable[UUID] = ()) -> list[UUID]:
    """Return runs that are past their latest start time, oldest first."""
    return _ids(_LATE, excluding)


def _ids(statement: str, excluding: Iterable[UUID]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(excluding), BATCH])
        return [row[0] for row in cursor.fetchall()]


def pass_on_from(runs: Iterable[UUID]) -> int:
    """Start the next queued run for each of these runs that has ended. Returns the number of started runs."""
    rows = Run.objects.filter(pk__in=list(runs), ended_at__isnull=False, is_passed_on=False)
    return sum(pass_on(run_id) for run_id in rows.exclude(business_key="").values_list("id", flat=True))


@transaction.atomic
def pass_on(run_id: UUID) -> bool:
    """Start the next queued run of a business key after a run has ended, once.
    Returns whether there was a queued run."""
    named = Run.objects.get(pk=run_id)
    keys.lock(named.agent, named.business_key)
    ended = Run.objects.get(pk=run_id)
    if ended.ended_at is None or ended.is_passed_on:
        return False
    is_let_in = _let_in_next(ended)
    # Only this end is handled, not a later one: the run may be retried at the same time, and end again.
    Run.objects.filter(pk=run_id, ended_at=ended.ended_at).update(is_passed_on=True)
    return is_let_in


def _let_in_next(ended: Run) -> bool:
    for run in keys.living(ended.agent, ended.business_key):
        if not run.is_queued:
            return False  # Another run is active. The queued runs wait for its end.
        try:
            if let_in(run.id, after=ended.id):
                return True
        except RecordDamaged as damaged:  # The run stays queued, but doesn't block the ones behind it.
            log.error("run %s: its turn has come, and it can't be let in: %s", run.id, damaged)
    return False


def let_in(run_id: UUID, *, after: UUID | None) -> bool:
    """Take a run out of the queue of its key, even if a pause or its start time still delays it.
    Needs its key's lock. Returns False if the run has ended or isn't queued."""
    _, run = locked(run_id, under=TURNS)
    if run.state in ENDED or not run.is_queued:
        return False
    now = database_now()
    run.is_queued = False
    if run.state == State.PENDING:
        make_ready(run, now=now)
    save(run, "is_queued", "ready_at", now=now)
    journal(run_id, e.RunAdmitted(by=TURNS.ref, after=None if after is None else str(after)), by=TURNS)
    return True


@transaction.atomic
def give_up(run_id: UUID) -> bool:
    """Cancel a run that has passed its latest start time. Return False if it has begun or ended meanwhile."""
    head, run = locked(run_id, under=SWEEPER)
    now = database_now()
    if run.state in ENDED or run.started_at is not None or run.start_before is None or run.start_before > now:
        return False
    payload = {"justification": f"it should have started before {run.start_before.isoformat()}, but had not"}
    journal(run_id, end_as_cancelled(run, head, by=SWEEPER.ref, payload=payload, now=now), by=SWEEPER)
    follow("cancel", run)
    return True


def follow(action: str, run: Run) -> None:
    """After the commit, start the next queued run if this one ended."""
    if run.business_key and run.state in ENDED:

        def passing_on() -> None:  # a named function, because Django logs the name if it fails
            pass_on(run.pk)

        transaction.on_commit(passing_on, robust=True)
