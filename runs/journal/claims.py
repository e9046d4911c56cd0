"""Taking a run: the claim of a ready one, and a worker's own run taken anew after an answer was lost. CP9 of
docs/step-protocol.md."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import psycopg

from runs import failpoints
from runs.engine.journal import Reply
from runs.journal.database_errors import translated
from runs.journal.libpq import Pool

log = logging.getLogger("runs.journal.claims")

CLAIM = """
    SELECT c.*, EXISTS (SELECT 1 FROM runs_run r WHERE r.id = c.run_id AND r.business_key <> '')
    FROM runs_claim(%s, %s, %s, %s::text[], %s, %s) c"""
RECLAIM = "SELECT * FROM runs_reclaim(%s, %s, %s, %s)"
# Where all that was looked at is under a halt, and put aside (a row of nulls says so), there is more behind it.
_LOOKS = 20
_READY = "SELECT id FROM runs_run WHERE ready_at <= clock_timestamp() AND graph_id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class Worker:
    """Who claims: the incarnation of the process, and where it runs."""

    id: UUID
    host: str
    pid: int

    @property
    def ref(self) -> str:
        return f"worker:{self.id}"

    @property
    def ascii_host(self) -> str:
        """The host's name as the claim's event, which SQL writes, can hold it: its JSON escapes less than Python's."""
        return re.sub(r"[^ -~]", "?", self.host)


@dataclass(frozen=True, slots=True)
class Claim:
    """A run in a worker's hands."""

    run_id: UUID
    graph_id: str
    generation: int
    trace_id: str
    created_by: str
    epoch: int
    lease: UUID
    seq: int
    at: datetime
    is_pause_requested: bool
    is_cancel_requested: bool
    is_on_hold: bool
    is_solo: bool
    is_keyed: bool = False  # others may be queued behind it

    @property
    def parent(self) -> str | None:
        """The run that started it as a step."""
        kind, _, starter = self.created_by.partition(":")
        return starter if kind == "run" else None

    @property
    def reply(self) -> Reply:
        return Reply(self.seq, self.at, self.is_pause_requested, self.is_cancel_requested, self.is_on_hold)


def _say(run_id: UUID, problem: str) -> None:
    log.error("run %s: can't be claimed: %s", run_id, problem)


async def claim(
    pool: Pool,
    worker: Worker,
    graph_ids: Sequence[str],
    limit: int,
    *,
    solo: bool = False,
    on_damaged: Callable[[UUID, str], None] = _say,
) -> list[Claim]:
    """Take up to `limit` of the best ready runs of these agent versions; with `solo`, of those that must be driven
    alone. A run that the database refuses to give is told to `on_damaged`, with what it says."""
    async with pool.connection() as connection:
        if failpoints.is_armed("CP9"):
            ready = await (await connection.execute(_READY, [list(graph_ids)])).fetchall()
            for (run_id,) in ready:
                failpoints.hit("CP9", run=str(run_id))
            if not ready:  # one that becomes so now must not be claimed past the point
                return []
        for _ in range(_LOOKS):
            cursor = await connection.execute(
                CLAIM, [worker.id, worker.ascii_host, worker.pid, list(graph_ids), limit, solo]
            )
            found = await cursor.fetchall()
            rows = [row for row in found if row[0] is not None]
            if rows or not found:
                break
    for run_id, *_, problem, _ in rows:
        if problem is not None:
            on_damaged(run_id, problem)
    return [replace(Claim(*row), is_keyed=is_keyed) for *row, problem, is_keyed in rows if problem is None]


async def reclaim(pool: Pool, worker: Worker, run_id: UUID) -> Claim:
    """Take a run of this worker's own again. Raises StaleLease when it is no longer this worker's."""
    async with pool.connection() as connection:
        try:
            cursor = await connection.execute(RECLAIM, [run_id, worker.id, worker.ascii_host, worker.pid])
        except psycopg.Error as error:
            raise translated(error) from error
        row = await cursor.fetchone()
        assert row is not None
        return Claim(*row)
