"""Claims of ready runs, and reclaims of a worker's own run after a lost answer.
See CP9 in the step protocol."""

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
# The setting is local to the statement's transaction, so that a pooler doesn't pass it on to other clients.
CLAIM_OTHERS = """
    WITH skipped AS MATERIALIZED (SELECT set_config('durableagents.skipped', %s, true) AS runs)
    SELECT c.*, EXISTS (SELECT 1 FROM runs_run r WHERE r.id = c.run_id AND r.business_key <> '')
    FROM skipped s CROSS JOIN LATERAL
        runs_claim(%s, %s, %s, %s::text[], CASE WHEN s.runs IS NULL THEN 0 ELSE %s END, %s) c"""
RECLAIM = "SELECT * FROM runs_reclaim(%s, %s, %s, %s)"
# A row of nulls means that all runs in the batch are halted and were put aside, and that there may be more runs.
_CLAIM_CHECKS = 20
_READY = "SELECT id FROM runs_run WHERE ready_at <= clock_timestamp() AND graph_id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class Worker:
    """The claiming process: its incarnation, and where it runs."""

    id: UUID
    host: str
    pid: int

    @property
    def ref(self) -> str:
        return f"worker:{self.id}"

    @property
    def ascii_host(self) -> str:
        """Return the host name in ASCII, for the claim's event.
        JSON from SQL escapes fewer characters than JSON from Python."""
        return re.sub(r"[^ -~]", "?", self.host)


@dataclass(frozen=True, slots=True)
class Claim:
    """A run held by a worker."""

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
    is_keyed: bool = False  # whether other runs may be queued behind it

    @property
    def parent(self) -> str | None:
        """Return the id of the run that started this one as a step, or None."""
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
    skipped: Sequence[UUID] = (),
    on_damaged: Callable[[UUID, str], None] = _say,
) -> list[Claim]:
    """Claim up to `limit` of the best ready runs (`solo`: runs to be driven alone), except `skipped`.
    Runs that can't be claimed because they are damaged are passed to `on_damaged`."""
    statement, others = (CLAIM_OTHERS, [f"{{{','.join(map(str, skipped))}}}"]) if skipped else (CLAIM, [])
    async with pool.connection() as connection:
        if failpoints.is_armed("CP9"):
            ready = await (await connection.execute(_READY, [list(graph_ids)])).fetchall()
            for (run_id,) in ready:
                failpoints.hit("CP9", run=str(run_id))
            if not ready:  # A run that becomes ready must not be claimed without passing this point.
                return []
        for _ in range(_CLAIM_CHECKS):
            cursor = await connection.execute(
                statement, [*others, worker.id, worker.ascii_host, worker.pid, list(graph_ids), limit, solo]
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
    """Claim a run of this worker again. Raises StaleLease if it is no longer this worker's."""
    async with pool.connection() as connection:
        try:
            cursor = await connection.execute(RECLAIM, [run_id, worker.id, worker.ascii_host, worker.pid])
        except psycopg.Error as error:
            raise translated(error) from error
        row = await cursor.fetchone()
        assert row is not None
        return Claim(*row)
