from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from durableagents import Context, End
from ledger import events as e
from ledger.models import Event
from runs.connections import dsn
from runs.engine.agents import Agent
from runs.fleet import members
from runs.journal.claims import CLAIM
from runs.models import Run, Sweep, Wait
from runs.workers import housekeeping, timers
from runs.workers.housekeeping import Housekeeping
from tests.integration.runs.stage import Stage, at_once, events, fresh, in_thread, kinds, now, problems
from tests.integration.runs.test_time import rows_read
from tests.tampering import tamper
from tests.waiting import eventually
from tests.world import Notes, agent_of, ends_with

# pg_stat_activity shows one transaction the same snapshot every time.
IS_WAITED_FOR = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"


def sleeper() -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(3600)
        return End("woke")

    return agent_of(node)


def asleep(stage: Stage, count: int) -> list[Run]:
    agent = sleeper()
    runs = [stage.start(agent) for _ in range(count)]
    while stage.drive() != "idle":
        pass
    Wait.objects.filter(run__in=runs).update(deadline=now() - timedelta(seconds=1))
    return runs


def test_what_sql_writes_about_a_deadline_is_the_event_that_python_would_write(stage: Stage) -> None:
    (run,) = asleep(stage, 1)
    timers.sweep()
    row = Event.objects.get(run_id=run.id, kind="WaitResolved")
    event = e.decode(row.clear)
    assert event == e.WaitResolved(slot=row.slot, attempt=0, wait="timer", n=0, resolution="fired", by="system:sweeper")
    assert bytes(row.clear) == e.encode_clear(event) and row.fact == event.fact and row.sealed is None
    assert problems(run) == []
    wait = Wait.objects.get(run=run)
    assert (wait.resolution, wait.resolved_by) == ("fired", "system:sweeper") and wait.resolved_at <= now()


def test_many_who_sweep_at_once_do_the_work_of_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = asleep(stage, 24)
    monkeypatch.setattr(timers, "BATCH", 7)
    walked: list[Any] = []
    plain = timers._fire

    def fire() -> int | None:
        found = plain()
        walked.append(found)
        return found

    monkeypatch.setattr(timers, "_fire", fire)

    def sweeps() -> None:
        for _ in range(20):
            timers.sweep()

    assert [x for x in at_once(*[sweeps] * 4) if x is not None] == []
    assert sum(x or 0 for x in walked) == len(runs), "nobody walks what another one settles"
    for run in runs:
        assert kinds(run).count("WaitResolved") == 1 and fresh(run).ready_at is not None
        assert problems(run) == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_q_ormq WHERE payload = ANY(%s)", [[str(run.id) for run in runs]])
        assert cursor.fetchone()[0] == 2 * len(runs), "one ring for each start, one for each deadline"


def test_a_run_that_somebody_holds_is_not_waited_for_and_comes_with_the_next_pass(stage: Stage) -> None:
    held, free = asleep(stage, 2)
    with psycopg.connect(dsn(name="a person")) as person:
        person.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE", [held.id])
        assert timers.sweep() == 0, "there is something left to do"
        assert (str(fresh(held).state), str(fresh(free).state)) == ("waiting_event", "running")
    timers.sweep()
    assert str(fresh(held).state) == "running"


def test_a_pass_ends_in_time_however_much_is_due(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same thread looks for dead workers, which must not wait for ten thousand timers."""
    runs = asleep(stage, 6)
    monkeypatch.setattr(timers, "BATCH", 2)
    monkeypatch.setattr(timers, "PASS_SECONDS", 0.0)
    assert timers.sweep() == 0
    assert sum(str(fresh(run).state) == "running" for run in runs) == 2
    while timers.sweep() == 0:
        pass
    assert all(events(run, e.WaitResolved) for run in runs)


def test_deadline_that_moves_before_the_run_is_locked_is_looked_at_again(stage: Stage) -> None:
    (run,) = asleep(stage, 1)
    with psycopg.connect(dsn(name="a person")) as person, ThreadPoolExecutor(1) as pool:
        person.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.id])
        sweep = pool.submit(in_thread, timers.sweep)
        eventually(lambda: person.execute(IS_WAITED_FOR).fetchone(), what="the sweeper waiting for the run", seconds=20)
        person.execute("UPDATE runs_wait SET deadline = now() + interval '1 hour' WHERE run_id = %s", [run.id])
        person.commit()
        sweep.result(20)
    assert not events(run, e.WaitResolved) and str(fresh(run).state) == "waiting_event"


def test_a_sweep_by_one_is_a_sweep_for_all(stage: Stage) -> None:
    timers.sweep()
    called = members.roll_call()
    assert called is not None and called.sweep_age is not None and 0 <= called.sweep_age < 60


def test_idle_sweeper_only_shows_that_it_lives(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "PASS_SECONDS", 0.0)
    swept: list[int] = []
    plain = timers.sweep
    monkeypatch.setattr(timers, "sweep", lambda: swept.append(1) or plain())
    hand = Housekeeping(stage.worker.id)
    hand.keep()
    assert len(swept) == 1, "nobody ever has"
    monkeypatch.setattr(housekeeping, "SHOWN_SECONDS", 0.0)
    hand.keep(), hand.keep()
    assert len(swept) == 1
    hand._versions_at = 0.0
    hand.keep()
    assert len(swept) == 2, "it is shown how long ago somebody swept"
    hand.close()


def test_what_comes_due_before_the_next_look_is_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other process does the same work meanwhile."""
    monkeypatch.setattr(housekeeping, "PASS_SECONDS", 0.0)
    monkeypatch.setattr(housekeeping, "SWEPT_SECONDS", 60.0)
    (run,) = asleep(stage, 1)
    Wait.objects.filter(run=run).update(deadline=now() + timedelta(hours=1))
    one, other = Housekeeping(stage.worker.id), Housekeeping(stage.hire().id)
    assert one.keep() >= timers.IDLE_SECONDS
    Sweep.objects.update(at=now() - timedelta(seconds=61))
    monkeypatch.setattr(timers, "IDLE_SECONDS", 30.0)
    Wait.objects.filter(run=run).update(deadline=now() + timedelta(seconds=15))
    assert one.keep() < timers.IDLE_SECONDS <= other.keep()
    Wait.objects.filter(run=run).update(deadline=now())
    one.keep()
    assert str(fresh(run).state) == "running"
    one.close(), other.close()


def ready_of_another_version(count: int) -> None:
    tamper(
        """INSERT INTO runs_run (id, agent, version, graph_id, state, generation, node, visit, is_woken, priority,
            tags, trace_id,
                                     created_by, created_at, updated_at, error_code, is_solo, ready_at)
               SELECT gen_random_uuid(), 'gone', '1.0.0', 'gone@1.0.0', 'pending', 0, '', 0, false, 5, '[]', '', '',
               clock_timestamp(),
                      clock_timestamp(), '', false, clock_timestamp() - interval '1 day'
               FROM generate_series(1, %s)""",
        count,
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runs_run")


def test_a_claim_costs_the_same_however_many_runs_of_other_versions_are_ready(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    runs = [stage.start(agent) for _ in range(5)]
    ready_of_another_version(100_000)
    before = rows_read()
    with connection.cursor() as cursor:  # the server can tell what it read
        cursor.execute(CLAIM, [stage.worker.id, "h", 1, [agent.graph_id], 5, False])
        taken = {row[0] for row in cursor.fetchall()}
    read = rows_read()["runs_run"] - before["runs_run"]
    assert taken == {run.id for run in runs} and 5 <= read <= 100, read
    with connection.cursor() as cursor:
        cursor.execute(
            "EXPLAIN SELECT id FROM runs_run WHERE graph_id = 'a' AND NOT is_solo AND lane = '' AND priority * -1 = 0 "
            "AND ready_at <= statement_timestamp() ORDER BY ready_at LIMIT 40"
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "runs_run_wanted" in plan and "Sort" not in plan, plan
