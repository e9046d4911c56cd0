"""A worker's periodic check of the database, in a single statement, because it is executed often.
The statement reads the runs that this worker owns, stop requests for the runs that it drives, and waiting solo runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

# For a waiting solo run: the worker with the run's version that drives the fewest runs, and the number of other workers
# that have all versions of this one.
_LOOK = """
    WITH solo AS (
        SELECT graph_id, protocol FROM runs_run
        WHERE is_solo AND ready_at <= statement_timestamp() AND graph_id = ANY(%(mine)s)
        ORDER BY priority DESC, ready_at LIMIT 1),
    crew AS (
        SELECT p.id, p.slots_used, count(*) AS serves,
               bool_or(s.graph_id = solo.graph_id AND p.protocol >= solo.protocol) AS can
        FROM solo, runs_process p
        JOIN runs_served s ON s.worker = p.id AND NOT s.is_quarantined AND s.graph_id = ANY(%(mine)s)
        WHERE p.kind = 'worker' AND p.ended_at IS NULL
          AND (p.id = %(me)s OR p.last_heartbeat_at > clock_timestamp() - interval '5 seconds')
        GROUP BY p.id),
    asked AS (
        SELECT run_id, is_cancel_requested FROM ledger_head
        WHERE run_id = ANY(%(active)s) AND (is_cancel_requested OR is_pause_requested))
    SELECT ARRAY(SELECT id FROM runs_run WHERE owner = %(me)s),
           ARRAY(SELECT run_id FROM asked WHERE is_cancel_requested),
           ARRAY(SELECT run_id FROM asked WHERE NOT is_cancel_requested),
           EXISTS (SELECT FROM solo),
           (SELECT id FROM crew WHERE can ORDER BY slots_used, id LIMIT 1),
           (SELECT count(*) FROM crew WHERE id <> %(me)s AND serves = cardinality(%(mine)s::text[]))"""


@dataclass(frozen=True, slots=True)
class Round:
    """Results of a round.
    `chosen` is the worker that must make room for a solo run; `others` is the number of workers that could replace this
    one."""

    owned: list[UUID]
    to_cancel: list[UUID]
    to_pause: list[UUID]
    is_solo_waiting: bool
    chosen: UUID | None
    others: int


async def read_round(
    link: psycopg.AsyncConnection[Any], worker: UUID, versions: Sequence[str], active: Sequence[UUID]
) -> Round:
    cursor = await link.execute(_LOOK, {"me": worker, "mine": list(versions), "active": list(active)})
    row = await cursor.fetchone()
    assert row is not None
    return Round(*row)
