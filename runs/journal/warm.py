"""Warms up connections.
A new backend's first call of a step function takes fifty times as long, because the function is compiled and
planned."""

from __future__ import annotations

import gc
import logging
from contextlib import ExitStack

import psycopg
from django.db import connections
from django.urls import get_resolver
from psycopg.rows import TupleRow
from psycopg_pool import PoolTimeout

from ledger.errors import first_line
from runs import log_messages
from runs.engine.agents import registry
from runs.journal.database_errors import HALTED

log = logging.getLogger("runs.journal.warm")

# Claims a run, drives it one step and ends it, in a transaction that is rolled back, so the run is never visible. One
# round trip.
_REHEARSAL = """
BEGIN;
DO $$
DECLARE
    one uuid := gen_random_uuid();
    worker uuid := gen_random_uuid();
    line ledger_line;
    candidate runs_candidate;
BEGIN
    line := ROW('VisitEntered', NULL, 0, NULL, '{}'::bytea, NULL, sha256('{}'))::ledger_line;
    PERFORM runs_start(one, '', '', 'rehearsal:' || one, '[]'::jsonb, '', '', NULL, '', ARRAY[]::text[],
                       ARRAY[line], 0);
    -- A claim looks at what was ready before it began.
    UPDATE runs_run SET ready_at = clock_timestamp() - interval '1 second' WHERE id = one;
    PERFORM runs_answer_to(0, '', '');
    PERFORM runs_call('rehearsal', one, 0);  -- nobody hears what is taken back
    SELECT * INTO candidate FROM runs_claim(worker, 'rehearsal', 0, ARRAY['rehearsal:' || one], 1, false);
    PERFORM runs_record(one, candidate.epoch, candidate.lease, '', ARRAY[line], ARRAY[]::ledger_fact[], NULL,
                        ROW(1, 0, 0, 0, 0)::runs_usage, ROW(0, 'x', 1, '', '{}'::bytea, sha256('{}'))::runs_cut);
    PERFORM runs_intend(one, candidate.epoch, candidate.lease, '', ARRAY[line],
                        ARRAY[ROW('0.1/1', 0, 'pending', 'x', 'pure', NULL, NULL, NULL, NULL)::ledger_fact],
                        NULL, NULL, NULL);
    PERFORM runs_leave(one, candidate.epoch, candidate.lease, 'end', 'completed', ARRAY[]::uuid[], '', ARRAY[line]);
    PERFORM ledger_append_as(one, '', ARRAY[line], ARRAY[]::ledger_fact[]);
END $$;
ROLLBACK"""


async def rehearse(link: psycopg.AsyncConnection[TupleRow]) -> None:
    """Warm up a pool's new connection. If that fails, the connection is only slower at first."""
    try:
        await link.execute(_REHEARSAL)
    except psycopg.Error as error:
        if error.sqlstate != HALTED:  # refused while the whole installation is halted
            log.warning(log_messages.NOT_REHEARSED, first_line(error))
        if not link.closed:
            await link.rollback()


def rehearse_pool(count: int) -> None:
    """Warm up `count` connections of Django's pool, which has no hook for this, before the first request."""
    pool = connections["default"].pool  # type: ignore[attr-defined]
    try:
        pool.open()
        with ExitStack() as held:
            for link in [held.enter_context(pool.connection()) for _ in range(count)]:
                link.execute(_REHEARSAL)
    except (psycopg.Error, PoolTimeout) as error:
        log.warning(log_messages.NOT_REHEARSED, first_line(error))


def load_and_freeze() -> None:
    """Load the modules that the first requests need, and exempt all objects from garbage collection.
    Collections would block requests."""
    get_resolver().url_patterns  # noqa: B018  loads every page
    for agent in registry.agents():
        agent.fingerprint()
    gc.collect()
    gc.freeze()
