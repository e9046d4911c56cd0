"""Claiming: every ready run is taken by exactly one worker that has its version, in order, and on record."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from ledger import events as e
from ledger.errors import NewerRun, StaleLease
from ledger.models import Event
from ledger.protocol import PROTOCOL
from ledger.verification.runs import verify
from runs.engine.agents import registry
from runs.fleet.agent_versions import drivable, why_not_driven
from runs.journal.claims import Claim, Worker, claim, reclaim
from runs.models import Process, Run, Served
from runs.services import command
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, events, fresh, head, kinds, now
from tests.world import agent_of, ends_with


def test_two_workers_never_take_the_same_run(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    runs = [stage.start(agent) for _ in range(24)]
    workers = [stage.hire() for _ in range(8)]

    async def all_at_once() -> list[tuple[Worker, Claim]]:
        pool = await stage.connected()

        async def greedy(worker: Worker) -> list[tuple[Worker, Claim]]:
            mine: list[tuple[Worker, Claim]] = []
            while found := await claim(pool, worker, [agent.graph_id], 3):
                mine += [(worker, one) for one in found]
            return mine

        return [pair for mine in await asyncio.gather(*map(greedy, workers)) for pair in mine]

    taken = stage.wait(all_at_once())
    # A run whose head was locked just then is skipped; the next look takes it.
    taken += [(stage.worker, one) for one in stage.claim(limit=40)]
    assert Counter(one.run_id for _, one in taken) == Counter(run.id for run in runs)
    for worker, one in taken:
        run = Run.objects.get(pk=one.run_id)
        assert (run.owner, run.ready_at, str(run.state)) == (worker.id, None, "running")
        assert one.epoch == 1 == head(run).epoch and one.lease == head(run).lease
        assert kinds(run) == ["RunCreated", "RunClaimed"] and one.seq == 2
        assert verify(run.id).problems == []


def test_versions_take_turns_no_matter_which_has_the_longer_queue(stage: Stage) -> None:
    """Also slot by slot: the version of which this worker drives the fewest runs comes first."""
    many, few = agent_of(ends_with(1)), agent_of(ends_with(2))
    for _ in range(20):
        stage.start(many)
    late = [stage.start(few) for _ in range(2)]
    urgent = stage.start(many)
    Run.objects.filter(pk=urgent.pk).update(priority=5)
    graphs = [many.graph_id, few.graph_id]
    assert [one.run_id for one in claimed(stage, graphs, 1)] == [urgent.id], "urgent ones first, whosever they are"
    assert [one.run_id for one in claimed(stage, graphs, 1)] == [late[0].id]
    assert [one.graph_id for one in claimed(stage, graphs, 1)] == [many.graph_id], "as many of each: the older one"
    assert [one.run_id for one in claimed(stage, graphs, 2)][:1] == [late[1].id]
    assert len(claimed(stage, graphs, 30)) == 18


def claimed(stage: Stage, graphs: list[str], limit: int) -> list[Claim]:
    async def take() -> list[Claim]:
        return await claim(await stage.connected(), stage.worker, graphs, limit)

    return stage.wait(take())


def test_a_worker_of_the_last_release_leaves_newer_runs_to_newer_workers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(ends_with(1))
    before, after = stage.start(agent), stage.start(agent)
    Run.objects.filter(pk=before.pk).update(protocol=PROTOCOL - 1)
    others = Process.objects.exclude(pk=stage.worker.id)
    others.update(ended_at=now())
    this = Process.objects.filter(pk=stage.worker.id)
    this.update(protocol=PROTOCOL - 1)
    Served.objects.create(worker=stage.worker.id, graph_id=agent.graph_id)
    assert [one.run_id for one in stage.claim(limit=10)] == [before.id]
    assert "only workers of the previous release" in (why_not_driven(fresh(after), drivable()) or "")
    this.update(protocol=PROTOCOL - 2)
    with pytest.raises(psycopg.Error, match=f"has protocol {PROTOCOL - 2}, but the database has protocol {PROTOCOL}"):
        stage.claim()
    # A person's act that reaches a web process of the last release is refused, and changes nothing.
    monkeypatch.setattr(command, "PROTOCOL", PROTOCOL - 1)
    with pytest.raises(NewerRun, match="newer release"):
        act("pause", after)
    assert kinds(after) == ["RunCreated"] and str(fresh(after).state) == "pending"
    monkeypatch.undo()
    this.update(protocol=PROTOCOL)
    assert why_not_driven(fresh(after), drivable()) is None
    assert [one.run_id for one in stage.claim(limit=10)] == [after.id]


def test_a_run_of_a_version_that_nobody_has_is_left_alone(stage: Stage) -> None:
    old, new = (
        agent_of(ends_with(1), name="many", version="1.0.0"),
        agent_of(ends_with(2), name="many", version="2.0.0"),
    )
    first, second = stage.start(old), stage.start(new)
    registry.remove(old.graph_id)
    assert [c.run_id for c in stage.claim(limit=10)] == [second.id]
    assert stage.claim(limit=10, graphs=[]) == []
    left = fresh(first)
    assert str(left.state) == "pending" and left.ready_at is not None and kinds(first) == ["RunCreated"]
    registry.add(old)
    assert stage.drive() == "completed"


def test_what_is_more_urgent_or_waits_longer_comes_first_and_no_more_than_asked(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    runs = [stage.start(agent) for _ in range(5)]
    Run.objects.filter(pk=runs[3].pk).update(priority=5)
    Run.objects.filter(pk=runs[0].pk).update(ready_at=now() + timedelta(hours=1))
    assert [c.run_id for c in stage.claim(limit=3)] == [runs[3].id, runs[1].id, runs[2].id]
    assert [c.run_id for c in stage.claim(limit=3)] == [runs[4].id]
    assert stage.claim(limit=3) == []


@pytest.mark.parametrize("state", ["paused", "waiting_human"])
def test_a_run_that_is_not_to_be_driven_is_not_taken_even_if_its_row_says_ready(stage: Stage, state: str) -> None:
    run = stage.start(agent_of(ends_with(1)))
    Run.objects.filter(pk=run.pk).update(state=state)
    assert fresh(run).ready_at is not None and stage.claim() == []


HOSTS = [
    "vm-1",
    'quo"ted',
    "back\\slash",
    "tab\t",
    "ümläut",
    "日本",
    "\U0001f9fe",
    "a" * 64,
    "",
    "</script>",
    "\x7f",
    "'; --",
]


@pytest.mark.parametrize("host", HOSTS)
def test_the_claim_that_sql_writes_is_the_event_that_python_would_write(stage: Stage, host: str) -> None:
    stage.worker = replace(stage.worker, host=host)
    run = stage.start(agent_of(ends_with(1)))
    stage.claim()
    row = Event.objects.get(run_id=run.id, seq=2)
    event = e.decode(row.clear)
    assert event == e.RunClaimed(
        epoch=1, worker=str(stage.worker.id), host=stage.worker.ascii_host, pid=stage.worker.pid, cause="start"
    )
    assert bytes(row.clear) == e.encode_clear(event)
    assert (row.kind, row.slot, row.attempt, row.fact, row.sealed) == ("RunClaimed", None, 0, None, None)
    assert verify(run.id).problems == []
    assert stage.wait(stage.journal(_again(stage, run)).load()).tail


def _again(stage: Stage, run: Run) -> Claim:
    async def again() -> Claim:
        return await reclaim(await stage.connected(), stage.worker, run.id)

    return stage.wait(again())


def test_a_claim_says_why_there_was_something_to_do(stage: Stage) -> None:
    from tests.integration.runs.situations import Situations, act
    from tests.world import Outside, Toolbox

    situations = Situations(stage, Toolbox(Outside()))
    causes: dict[str, str] = {}
    for situation, service in [
        ("pending", ""),
        ("queued", ""),
        ("paused_pending", "resume"),
        ("failed", "retry"),
        ("stopped", "retry"),
        ("unknown", "did_not"),
    ]:
        run = situations.make(situation)
        if service:
            act(service, run)
        Run.objects.filter(pk=run.pk).update(ready_at=now())
        stage.drive()
        causes[situation] = events(run, e.RunClaimed)[-1].cause
    assert causes == {
        "pending": "start",
        "queued": "recovered",
        "paused_pending": "resumed",
        "failed": "retried",
        "stopped": "resolved",
        "unknown": "resolved",
    }


def test_a_worker_takes_its_own_run_again_and_nobody_elses(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    (first,) = stage.claim()
    again = _again(stage, run)
    assert again.epoch == first.epoch + 1 and again.lease != first.lease
    assert events(run, e.RunClaimed)[-1].cause == "reconnected"

    another = stage.hire()

    async def other() -> Any:
        return await reclaim(await stage.connected(), another, run.id)

    with pytest.raises(StaleLease):
        stage.wait(other())
    assert head(run).epoch == again.epoch and stage.drive_claimed(again) == "completed"

    async def of_nothing() -> Any:
        return await reclaim(await stage.connected(), stage.worker, UUID(int=1))

    with pytest.raises(psycopg.Error, match="does not exist"):
        stage.wait(of_nothing())


def test_a_head_that_somebody_holds_is_passed_over_and_not_waited_for(stage: Stage) -> None:
    from django.db import connection, transaction

    agent = agent_of(ends_with(1))
    held, free = stage.start(agent), stage.start(agent)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE", [held.id])
        assert [c.run_id for c in stage.claim(limit=10)] == [free.id]
    assert [c.run_id for c in stage.claim(limit=10)] == [held.id]


def test_warm_connection_has_rehearsed_every_step(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    from runs.journal.warm import rehearse
    from tests.integration.runs.stage import dump

    before = dump()

    async def warm() -> str:
        async with (await stage.connected()).connection() as link:
            await rehearse(link)
            return link.info.transaction_status.name

    assert stage.wait(warm()) == "IDLE"
    assert caplog.text == "" and dump() == before


def test_the_web_process_serves_with_connections_that_have_rehearsed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import connections
    from psycopg_pool import ConnectionPool

    from runs.connections import dsn
    from runs.journal.warm import rehearse_pool
    from tests.integration.runs.stage import dump

    before, statements = dump(), []
    with ConnectionPool(dsn(), min_size=1, max_size=3, open=False, kwargs={"autocommit": True}) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(type(connections["default"]), "pool", property(lambda self: pool))
            rehearse_pool(3)
        for link in [pool.getconn() for _ in range(3)]:
            statements.append((link.info.backend_pid, link.info.transaction_status.name, _memory_of_plans(link)))
            pool.putconn(link)
    assert len({pid for pid, *_ in statements}) == 3 and {state for _, state, _ in statements} == {"IDLE"}
    assert min(plans for *_, plans in statements) > 0
    assert caplog.text == "" and dump() == before


def _memory_of_plans(link: Any) -> int:
    row = link.execute(
        "SELECT count(*) FROM pg_backend_memory_contexts WHERE name IN ('CachedPlan', 'CachedPlanSource', 'SPI Plan')"
    ).fetchone()
    return int(row[0])


def test_a_connection_that_cannot_rehearse_is_used_all_the_same(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    from django.db import connection

    from runs.journal.warm import rehearse

    async def warm() -> int:
        async with (await stage.connected()).connection() as link:
            await rehearse(link)
            row = await (await link.execute("SELECT 1")).fetchone()
            return int(row[0]) if row else 0

    with connection.cursor() as cursor:
        cursor.execute("ALTER FUNCTION runs_leave RENAME TO runs_leave_off")
        try:
            assert stage.wait(warm()) == 1
        finally:
            cursor.execute("ALTER FUNCTION runs_leave_off RENAME TO runs_leave")
    assert "could not be warmed up" in caplog.text
