"""A connection that has done everything once: a fresh backend compiles and plans each step function at its first call, which takes a
step fifty times as long as any later one, and a worker would pay for that just when the first runs come. The web process likewise has
loaded everything before its first request."""

from __future__ import annotations

import gc
import logging
from contextlib import ExitStack

import psycopg
from django.db import connections
from django.urls import get_resolver
from psycopg.rows import TupleRow
from psycopg_pool import PoolTimeout

from runs import notices

log = logging.getLogger("runs.warm")

# A run that nobody ever sees: it is claimed, driven a step and ended in a transaction that is taken back. One round trip.
_REHEARSAL = """
BEGIN;
DO $$
DECLARE
    one uuid := gen_random_uuid();
    worker uuid := gen_random_uuid();
    line ledger_line;
    found runs_candidate;
BEGIN
    line := ROW('VisitEntered', NULL, 0, NULL, '{}'::bytea, NULL, sha256('{}'))::ledger_line;
    INSERT INTO ledger_head (run_id, epoch, seq, claimed_seq, deaths, chain, is_pause_requested, is_cancel_requested, is_on_hold, steps,
                             tokens_in, tokens_out, usd_micro, tool_calls, model_calls)
    VALUES (one, 0, 0, 0, 0, sha256('x'), false, false, false, 0, 0, 0, 0, 0, 0);
    INSERT INTO runs_run (id, agent, version, graph_id, state, generation, node, visit, is_woken, is_solo, priority, tags, trace_id,
                          created_by, created_at, updated_at, error_code, ready_at)
    VALUES (one, '', '', 'rehearsal:' || one, 'pending', 0, '', 0, false, false, 0, '[]', '', '', clock_timestamp(), clock_timestamp(), '',
            clock_timestamp() - interval '1 second');
    SELECT * INTO found FROM runs_claim(worker, 'rehearsal', 0, ARRAY['rehearsal:' || one], 1, false);
    PERFORM runs_record(one, found.epoch, found.lease, '', ARRAY[line], ARRAY[]::ledger_fact[], NULL, ROW(1, 0, 0, 0, 0)::runs_usage,
                        ROW(0, 'x', 1, '', '{}'::bytea, sha256('{}'))::runs_cut);
    PERFORM runs_intend(one, found.epoch, found.lease, '', ARRAY[line], ARRAY[ROW('0.1/1', 0, 'pending', 'x', 'pure', NULL, NULL, NULL, NULL)::ledger_fact],
                        NULL, NULL, NULL);
    PERFORM runs_leave(one, found.epoch, found.lease, 'end', 'completed', ARRAY[]::uuid[], '', ARRAY[line]);
    PERFORM ledger_append_as(one, '', ARRAY[line], ARRAY[]::ledger_fact[]);
END $$;
ROLLBACK"""


async def rehearse(link: psycopg.AsyncConnection[TupleRow]) -> None:
    """For a pool, on every new connection. One that can't is as good as any, only slower at first."""
    try:
        await link.execute(_REHEARSAL)
    except psycopg.Error as error:
        log.warning(notices.NOT_REHEARSED, notices.first_line(error))
        if not link.closed:
            await link.rollback()


def rehearse_pool(count: int) -> None:
    """For the web process, whose pool is Django's and takes no word in how it is made: `count` connections, before the first request."""
    pool = connections["default"].pool  # type: ignore[attr-defined]
    try:
        pool.open()
        with ExitStack() as held:
            for link in [held.enter_context(pool.connection()) for _ in range(count)]:
                link.execute(_REHEARSAL)
    except (psycopg.Error, PoolTimeout) as error:
        log.warning(notices.NOT_REHEARSED, notices.first_line(error))


def load_and_freeze() -> None:
    """Load what the first requests to the web process would, and take what is loaded out of the garbage collector's rounds: it never goes,
    and to walk all of it takes a tenth of a second, in which nobody is answered."""
    get_resolver().url_patterns  # noqa: B018  loads every page
    gc.collect()
    gc.freeze()
