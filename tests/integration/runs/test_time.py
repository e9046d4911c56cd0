"""Sweeps cost what is due, not what exists, and use the database's clock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from runs.models import Wait
from runs.services import lifecycle
from runs.workers import timers
from tests.integration.runs import clockwork
from tests.integration.runs.stage import Stage, now
from tests.tampering import without_triggers
from tests.tiers import many
from tests.world import SHOP

MANY, DUE = many(100_000, 20_000), 50


def wait_for_later(count: int) -> None:
    """Insert rows of this many runs that wait for days; nobody reads their journals."""
    with without_triggers() as cursor:
        cursor.execute(
            """INSERT INTO runs_run (id, agent, version, graph_id, state, generation, node, visit, is_woken, priority,
            tags, trace_id,
                                     created_by, created_at, updated_at, error_code, is_solo)
               SELECT gen_random_uuid(), 'later', '1.0.0', 'later@1.0.0', 'waiting_event', 0, '', 0, false, 0, '[]', '',
               '', now(),
                      now(), '', false
               FROM generate_series(1, %s)""",
            [count],
        )
        cursor.execute(
            """INSERT INTO runs_wait (id, run_id, slot, attempt, kind, n, opened_at, deadline, detail, is_overdue)
               SELECT gen_random_uuid(), id, '0.1/1', 0, 'timer', 0, now(), now() + interval '1 day' * (1 + random()),
               '{}', false
               FROM runs_run WHERE agent = 'later'"""
        )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runs_run, runs_wait")


def rows_read() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables")
        return dict(cursor.fetchall())


def test_a_sweep_costs_what_is_due_however_many_wait(stage: Stage) -> None:
    runs = [lifecycle.start(clockwork.agent.graph_id, {"sleep_seconds": 3600}, by=SHOP) for _ in range(DUE)]
    while stage.drive() != "idle":
        pass
    wait_for_later(MANY)
    Wait.objects.filter(run__in=runs).update(deadline=now() - timedelta(seconds=1))
    before = rows_read()
    timers.sweep()
    after = rows_read()
    read = {table: after[table] - before.get(table, 0) for table in after if after[table] != before.get(table, 0)}
    assert Wait.objects.filter(run__in=runs, resolution="fired").count() == DUE
    assert max(read.values()) <= DUE * 2 * DUE, f"rows read for {DUE} due of {MANY}: {read}"
    before = rows_read()
    assert 0 < timers.sweep() <= timers.IDLE_SECONDS
    idle = sum(rows_read().values()) - sum(before.values())
    assert idle < 500, f"a sweep that finds nothing due reads {idle} rows"


@pytest.mark.parametrize("statement", ["due", "next"])
def test_what_is_due_is_found_by_its_index(stage: Stage, statement: str) -> None:
    wait_for_later(5_000)
    query = {"due": timers.DUE, "next": timers.NEXT}[statement]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {query}", [[], *([list(timers.RESOLUTIONS), 200] if statement == "due" else [])])
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "runs_wait_due" in plan and "Seq Scan" not in plan, plan
