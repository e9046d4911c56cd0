"""A worker's view of halts, read each round and on notification.

It stops the worker's runs and calls under a halt, and reports what is still in progress.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from runs.engine.halts import Halts
from runs.engine.runtime import Control
from runs.journal.database_errors import patiently
from runs.journal.libpq import Pool

AT_CALLS = ("tool", "provider")
# Reads the halts in force, and which of this worker's runs each one covers. If there are no halts, the answer is
# immediate.
_READ = """
    SELECT clock_timestamp(),
           coalesce((SELECT jsonb_agg(jsonb_build_array(n.id, n.scope, n.key, n.kind)) FROM runs_haltnow n), '[]'),
           coalesce((SELECT jsonb_agg(jsonb_build_array(r.id, h.id)) FROM runs_run r
                     CROSS JOIN LATERAL runs_halts_on(r.id, r.agent, r.graph_id, false, NULL) h
                     WHERE EXISTS (SELECT 1 FROM runs_haltnow) AND r.id = ANY(%s::uuid[])), '[]')"""
_HALTED = "SELECT runs_halted_by(%s, ARRAY[%s]) IS NOT NULL"
# A worker that is recorded as ended reports nothing.
_TELL = """
    INSERT INTO runs_haltseen AS s (line, worker, seen_at, confirmed_at, running, calls, told_at)
    SELECT x.id, %s, clock_timestamp(), CASE WHEN x.running = 0 THEN clock_timestamp() END, x.running, x.calls,
           clock_timestamp()
    FROM jsonb_to_recordset(%s::jsonb) AS x(id bigint, running int, calls jsonb)
    ON CONFLICT (line, worker) DO UPDATE SET running = excluded.running, calls = excluded.calls,
        told_at = excluded.told_at, confirmed_at = coalesce(s.confirmed_at, excluded.confirmed_at)"""


@dataclass(frozen=True, slots=True)
class KnownHalt:
    """A halt in force, as it was last read."""

    id: int
    scope: str
    key: str
    kind: str

    def is_about(self, key: str) -> bool:
        """Return whether the halt may block a call under this key.

        Only the database knows whether the run itself is in the halt's scope.
        """
        return self.scope not in AT_CALLS or f"{self.scope}:{self.key}" == key


class KnownHalts(Halts):
    """The halts known to one worker."""

    def __init__(self, worker: UUID) -> None:
        self.worker = worker
        self._pool: Pool | None = None
        self._known: tuple[KnownHalt, ...] = ()
        self.read_at = float("-inf")
        self._told: dict[int, Any] = {}

    def lend(self, pool: Pool) -> KnownHalts:
        """Set the connection pool for queries, and return self."""
        self._pool = pool
        return self

    # --- before a call is sent ----------------------------------------------------------------------------------------

    def is_about(self, key: str) -> bool:
        return any(known.is_about(key) for known in self._known)

    async def is_halted(self, run_id: str, key: str) -> bool:
        return await patiently(lambda: self._is_halted(run_id, key), f"run {run_id}, reading whether {key} is halted")

    async def _is_halted(self, run_id: str, key: str) -> bool:
        assert self._pool is not None
        async with self._pool.connection() as link:
            row = await (await link.execute(_HALTED, [run_id, key])).fetchone()
        return bool(row and row[0])

    # --- in the worker's round ----------------------------------------------------------------------------------------

    async def refresh(self, link: psycopg.AsyncConnection[Any], active: Mapping[UUID, Control]) -> None:
        """Read the halts, stop the runs under them, and report what is in progress in their scopes."""
        began = time.monotonic()
        row = await (await link.execute(_READ, [list(active)])).fetchone()
        assert row is not None
        now, halts, under = row
        self._known, self.read_at = tuple(KnownHalt(*each) for each in halts if each[3] != "starts"), began
        self.is_any_known = bool(self._known)
        covered: dict[int, set[UUID]] = {}
        for run_id, halt in under:
            covered.setdefault(halt, set()).add(UUID(run_id))
            if (control := active.get(UUID(run_id))) is not None:
                control.ask("halt")
        states = {halt.id: self._under_way(halt, covered.get(halt.id, set()), active, now) for halt in self._known}
        news = {halt: state for halt, state in states.items() if self._told.get(halt) != state}
        if news:
            state = [{"id": halt, "running": running, "calls": calls} for halt, (running, calls) in news.items()]
            await link.execute(_TELL, [self.worker, json.dumps(state)])
        self._told = states

    def _under_way(
        self, halt: KnownHalt, covered: set[UUID], active: Mapping[UUID, Control], now: datetime
    ) -> tuple[int, list[dict[str, Any]]]:
        """Return how many runs in the halt's scope haven't reached a step boundary, and its calls in flight."""
        calls, running = [], 0
        for run_id, control in active.items():
            is_covered = run_id in covered
            sent = [
                one
                for one in control.in_flight.values()
                if is_covered or (halt.scope in AT_CALLS and halt.is_about(one.key))
            ]
            running += is_covered and not sent
            calls += [
                {
                    "run": str(run_id),
                    "slot": one.slot,
                    "what": one.key,
                    "timeout": one.timeout,
                    "since": _second(now - timedelta(seconds=time.monotonic() - one.since)),
                }
                for one in sent
            ]
        return running, sorted(calls, key=lambda call: (call["run"], call["slot"]))


def _second(at: datetime) -> str:
    """Round to the second, so that a call is reported identically each round."""
    return (at + timedelta(milliseconds=500)).replace(microsecond=0).isoformat()
