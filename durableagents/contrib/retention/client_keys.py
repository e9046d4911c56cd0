"""Removes expired idempotency keys of clients with their answers, oldest first, in small batches.

Off unless configured."""

from __future__ import annotations

from django.conf import settings
from django.db import connection

from runs.background import Duty

JOB = "retention: client keys"
BATCH = 1000  # keys removed in one transaction
_OLD = "created_at < now() - make_interval(days => {days})"


def duties() -> tuple[Duty, ...]:
    """Return the job that removes expired keys; empty if keys are kept forever."""
    days = settings.DURABLEAGENTS.idempotency_key_days
    if days is None:
        return ()
    # Ids are in chronological order, so the oldest key is found by the primary key.
    oldest = "SELECT * FROM runs_idempotencyrecord ORDER BY id LIMIT 1"
    is_due = f"EXISTS (SELECT FROM ({oldest}) k WHERE {_OLD.format(days=int(days))})"
    return (Duty(JOB, is_due, remove_expired),)


def remove_expired() -> int:
    """Remove keys that are older than the setting allows; return their number.

    Several processes may do so at the same time. Keys of open transactions are not visible, so they are kept."""
    days = settings.DURABLEAGENTS.idempotency_key_days
    removed, last = 0, BATCH
    while days is not None and last == BATCH:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM runs_idempotencyrecord WHERE id = ANY (ARRAY(SELECT id FROM (SELECT id, created_at FROM "
                f"runs_idempotencyrecord ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) k "
                f"WHERE {_OLD.format(days='%s')}))",
                [BATCH, days],
            )
            last = cursor.rowcount
        removed += last
    return removed
