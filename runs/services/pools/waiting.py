"""Runs that wait for a pool: let in when there is room, ended at the deadline; and the pools' notices."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection

from ledger.actors import Actor
from ledger.models import Head
from runs.engine.budget import usd_of
from runs.journal import notify
from runs.models import PoolNotice, Run, Wait
from runs.services.command import end_unserved
from runs.services.wakeups import NOTIFY_SQL

log = logging.getLogger("runs.services.pools")
_LOCK = 7_231_026  # arbitrary, the same in every process
BATCH = 100
_DUE = """
    SELECT pool_id, is_untold, gate_at IS NOT NULL, is_on AND ends_at <= clock_timestamp() FROM runs_poolmeter
    WHERE is_untold OR gate_at IS NOT NULL OR is_on AND ends_at <= clock_timestamp() ORDER BY pool_id"""
_OPEN = "SELECT wait_id, run_id, seq, is_awake, problem FROM runs_open_gate(%s, %s, %s::uuid[], %s)"
_TOLD = "UPDATE runs_poolmeter SET is_untold = false WHERE pool_id = %s AND is_untold"
_WORDS = {
    PoolNotice.Kind.WARNING: "four fifths are used or set aside",
    PoolNotice.Kind.BREACH: "calls wait for it",
}


def due() -> list[int]:
    """Start due periods, log notices, and return pools with waiting runs; one query if nothing is due."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE)
        rows = cursor.fetchall()
        if any(is_over for *_, is_over in rows):
            cursor.execute("SELECT runs_turn_pools()")
        for pool, is_untold, *_ in rows:
            if is_untold:
                cursor.execute(_TOLD, [pool])
                if cursor.rowcount:
                    _tell(pool)
    return [pool for pool, _, is_gated, _ in rows if is_gated]


def open_gate(pool: int, besides: Sequence[UUID] = ()) -> list[tuple[UUID, UUID, str | None]]:
    """Let in a batch of waiting runs as far as there is room; returns each wait, its run, and its problem, if any."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [_LOCK, pool, list(besides), BATCH])
        rows = [row for row in cursor.fetchall() if row[0] is not None]
    if any(is_awake for *_, is_awake, _ in rows):
        notify.notify_after_commit(connection, NOTIFY_SQL)
    notify.ring_many({str(run_id): seq for _, run_id, seq, _, problem in rows if problem is None})
    return [(wait_id, run_id, problem) for wait_id, run_id, *_, problem in rows]


def _tell(pool: int) -> None:
    notice = PoolNotice.objects.select_related("pool").filter(pool_id=pool).order_by("-id").first()
    if notice is None:
        return
    shown = usd_of if notice.pool.resource == "usd_micro" else str
    log.warning(
        "pool %s (%s): %s: %s used, %s set aside, of %s",
        pool,
        notice.pool.name,
        _WORDS[PoolNotice.Kind(notice.kind)],
        shown(notice.used),
        shown(notice.reserved),
        shown(notice.most),
    )


def give_up(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """End a run that got no room before its wait's deadline."""
    reason = f"the pool {wait.detail.get('name')} had no room for it before the deadline"
    payload = {"justification": reason, "resource": str(wait.detail.get("resource"))}
    end_unserved(head, run, wait, now, by, payload=payload)
