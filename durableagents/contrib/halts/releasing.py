"""Release what a halt held, soon after it was lifted.

These are runs that were put aside, and deadlines that were extended in advance.
"""

from __future__ import annotations

import time
from uuid import UUID

from django.db import connection, transaction

from runs.journal import notify
from runs.journal.database_errors import is_transient
from runs.services.halted_time import follow_deadline
from runs.services.wakeups import NOTIFY_SQL

IS_DUE = "EXISTS (SELECT 1 FROM runs_held) OR EXISTS (SELECT 1 FROM runs_stood WHERE until > clock_timestamp())"
BATCH = 500
DEADLINES = 25
_LOCK = 7_231_065  # an arbitrary number, the same in every process
Failures = list[tuple[UUID, UUID, Exception]]


def release(_: list[UUID], until: float) -> Failures:
    """Release runs that are no longer halted, for as long as the monotonic clock is before `until`.

    Returns the deadlines that could not be corrected yet.
    """
    while release_runs() and time.monotonic() < until:
        pass
    return pull_back()


def release_runs() -> int:
    """Release a batch of runs that are no longer halted; return how many were checked."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_let_go(%s, %s)", [_LOCK, BATCH])
        checked = int(cursor.fetchone()[0])
    if checked:
        notify.notify_after_commit(connection, NOTIFY_SQL)
    return checked


@transaction.atomic
def pull_back() -> Failures:
    """Correct deadlines that were extended in advance, in batches, locking the heads."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT w.id, w.run_id FROM runs_pull_back(%s) AS moved (id) JOIN runs_wait w USING (id)",
            [DEADLINES],
        )
        waits = cursor.fetchall()
    failures: Failures = []
    for wait_id, run_id in waits:
        try:
            with transaction.atomic():
                follow_deadline(wait_id)
        except Exception as error:
            if is_transient(error):
                raise
            failures.append((wait_id, run_id, error))
    return failures
