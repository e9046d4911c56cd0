"""Several runs whose steps are ready in one turn of the event loop, and the results in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection

from ledger import events as e
from ledger.verification.runs import verify
from runs.connections import dsn
from runs.engine.journal import Entry, Reply
from runs.journal.committer import committer
from runs.journal.postgres import PgJournal
from runs.models import Run
from tests.integration.runs.stage import Stage
from tests.world import agent_of, ends_with

# Put everything ready in one turn into one batch, so that neighbours' effects on each other show.
together_in_one = pytest.mark.usefixtures("one_batch")
ENTRY = Entry("0.1/1", 0, "pending", "order", "idempotent_with_key", key="k")


def value(number: int = 0, payload: Any = 1) -> e.ValueRead:
    return e.ValueRead(slot=f"0.1/{number}", what="now", payload=payload)


def invoked() -> e.ToolInvoked:
    return e.ToolInvoked(
        slot="0.1/1", tool="order", replay_class="idempotent_with_key", requested_hash="h", executed_hash="h"
    )


def crew(stage: Stage, count: int) -> tuple[list[Run], list[PgJournal]]:
    """Return this many runs, each with its journal; the journals share a pool, as in a host."""
    agent = agent_of(ends_with(1))
    runs = {run.id: run for run in (stage.start(agent) for _ in range(count))}
    claims = stage.claim(limit=count)
    assert len(claims) == count
    return [runs[each.run_id] for each in claims], [stage.journal(each) for each in claims]


@contextmanager
def beside_another(stage: Stage) -> Iterator[None]:
    """Keep another run's write in flight: without one, the first of several writes would be sent alone, at once."""
    sending = committer(stage.wait(stage.connected()))
    sending.in_flight += 1
    try:
        yield
    finally:
        sending.in_flight -= 1


def together(stage: Stage, *writes: Coroutine[Any, Any, Reply]) -> list[Any]:
    async def at_once() -> list[Any]:
        return list(await asyncio.gather(*writes, return_exceptions=True))

    with beside_another(stage):
        return stage.wait(at_once())


def commits(*runs: Run) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT count(DISTINCT e.xmin::text) FROM ledger_event e
               JOIN ledger_head h ON h.run_id = e.run_id AND h.seq = e.seq
               WHERE e.run_id = ANY(%s)""",
            [[run.id for run in runs]],
        )
        return int(cursor.fetchone()[0])


def carried(*runs: Run) -> list[int]:
    """Return how many runs' values each transaction wrote, in the values' order."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT count(*) FROM ledger_event WHERE run_id = ANY(%s) AND kind = 'ValueRead'
               GROUP BY xmin::text ORDER BY min(at)""",
            [[run.id for run in runs]],
        )
        return [int(count) for (count,) in cursor.fetchall()]


@contextmanager
def holding(query: str, *values: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn()) as other:
        other.execute(query, values)
        yield other
        other.rollback()


HEAD = "SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE"
RUN = "SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE"


async def until_somebody_waits(count: int = 1) -> None:
    def look() -> None:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        with psycopg.connect(dsn(), autocommit=True) as link:
            while link.execute(waiting).fetchone() != (count,):
                pass

    await asyncio.to_thread(look)


def is_sound(*runs: Run) -> bool:
    return [verify(run.id, using=()).problems for run in runs] == [[]] * len(runs)
