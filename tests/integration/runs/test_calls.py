from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection

from durableagents import Context, End
from ledger.clock import database_now
from runs.connections import dsn
from runs.journal.claims import Worker
from runs.models import Process, Run, Served
from runs.services.wakeups import CALL_SQL, CHANNEL
from runs.workers import run_loop as hosts
from runs.workers.run_loop import Host
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage, fresh
from tests.waiting import eventually
from tests.world import Notes, agent_of, ends_with

FAR_SECONDS = 120.0


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Counter[UUID]:
    """Count each worker's claims. Polling is off, so a lost wake-up shows."""
    counted: Counter[UUID] = Counter()
    plain = hosts.claim

    async def claim(pool: Any, worker: Worker, *given: Any, **more: Any) -> Any:
        counted[worker.id] += 1
        return await plain(pool, worker, *given, **more)

    monkeypatch.setattr(hosts, "claim", claim)
    monkeypatch.setattr(hosts, "TICK_SECONDS", FAR_SECONDS)
    return counted


def on_show(worker: Worker, graphs: Sequence[str], *, slots: int = 10, used: int = 0, **fields: Any) -> None:
    """Write the worker's heartbeat row (fresh for the whole test) and its loaded agents."""
    fields = {
        "last_heartbeat_at": database_now() + timedelta(hours=1),
        "slots_total": slots,
        "slots_used": used,
    } | fields
    Process.objects.filter(pk=worker.id).update(**fields)
    for graph_id in graphs:
        Served.objects.get_or_create(worker=worker.id, graph_id=graph_id)


def out_of_call(worker: Worker) -> None:
    """Let it get no wake-ups though it lives; a silent row would count as dead."""
    on_show(worker, [], slots=1, used=1)


def called_for(run: Run) -> str:
    with psycopg.connect(dsn(), autocommit=True) as link:
        link.execute(f"LISTEN {CHANNEL}")
        link.execute(CALL_SQL, [str(run.id)])
        return next(iter(link.notifies(timeout=30, stop_after=1))).payload


@contextmanager
def crew(stage: Stage, count: int, claims: Counter[UUID], **more: Any) -> Iterator[list[Host]]:
    with ExitStack() as stack:
        made = [stack.enter_context(working(stage, stage.hire(), **more)) for _ in range(count)]
        eventually(lambda: _listening() == count, what="their ears", seconds=60)
        eventually(lambda: all(claims[host.worker.id] for host in made), what="their first looks", seconds=60)
        yield made


def _listening() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
            "application_name LIKE 'durableagents host%%'"
            " AND query LIKE 'LISTEN%%'"
        )
        return int(cursor.fetchone()[0])


def ended(run: Run) -> Callable[[], bool]:
    return lambda: str(fresh(run).state) == "completed"


def test_a_ring_wakes_one_worker_and_costs_one_claim(stage: Stage, claims: Counter[UUID]) -> None:
    agent = agent_of(ends_with(1))
    with crew(stage, 3, claims) as crewed:
        for host in crewed:
            on_show(host.worker, [agent.graph_id])
        eventually(ended(stage.start(agent)), what="a run", seconds=60)
        before = claims.total()
        for _ in range(12):
            eventually(ended(stage.start(agent)), what="the next run", seconds=60)
        assert claims.total() - before == 12


def test_the_lot_falls_on_each_and_on_those_with_room_more_often(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    roomy, narrow = stage.hire(), stage.hire()
    on_show(roomy, [run.graph_id], slots=50)
    on_show(narrow, [run.graph_id], slots=50, used=40)
    drawn = Counter(called_for(run) for _ in range(120))
    assert set(drawn) == {str(roomy.id), str(narrow.id)} and drawn[str(roomy.id)] > 60


@pytest.mark.parametrize(
    "fault",
    [
        lambda w, g: on_show(w, [g], slots=3, used=3),
        lambda w, g: on_show(w, [g], ended_at=database_now()),
        lambda w, g: on_show(w, [g], kind="web"),
        lambda w, g: on_show(w, [g], last_heartbeat_at="2026-01-01T00:00:00Z"),
        lambda w, g: on_show(w, ["another@1.0.0"]),
        lambda w, g: (on_show(w, [g]), Served.objects.update(is_quarantined=True)),
    ],
    ids=["full", "ended", "no worker", "silent", "of another version", "quarantined"],
)
def test_all_are_called_where_nobody_has_room(stage: Stage, fault: Callable[[Worker, str], object]) -> None:
    run = stage.start(agent_of(ends_with(1)))
    fault(stage.hire(), run.graph_id)
    assert called_for(run) == ""


def test_a_run_that_must_be_driven_alone_calls_all(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    on_show(stage.hire(), [run.graph_id])
    Run.objects.filter(pk=run.pk).update(is_solo=True)
    assert called_for(run) == ""


def _held() -> tuple[Any, threading.Event, threading.Event]:
    begun, free = threading.Event(), threading.Event()

    async def node(state: Notes, ctx: Context) -> End:
        begun.set()
        await asyncio.to_thread(free.wait, 600)
        return End("done")

    return node, begun, free


def test_who_is_called_and_has_no_room_after_all_calls_the_others(stage: Stage, claims: Counter[UUID]) -> None:
    node, begun, free = _held()
    keeps, plain = agent_of(node, name="keeps"), agent_of(ends_with(1))
    with crew(stage, 2, claims, slots=1) as (full, other):
        try:
            on_show(full.worker, [keeps.graph_id])
            held = stage.start(keeps)
            assert begun.wait(60)
            if fresh(held).owner == other.worker.id:  # it looked first, by polling
                full, other = other, full
            assert fresh(held).owner == full.worker.id
            on_show(full.worker, [plain.graph_id])  # the state of a moment ago
            out_of_call(other.worker)
            eventually(ended(stage.start(plain)), what="the other taking it", seconds=60)
        finally:
            free.set()
        eventually(ended(held), what="the first run", seconds=60)


def test_a_slot_that_falls_free_is_filled_at_once(stage: Stage, claims: Counter[UUID]) -> None:
    node, begun, free = _held()
    keeps, plain = agent_of(node, name="keeps"), agent_of(ends_with(1))
    with crew(stage, 1, claims, slots=1):
        stage.start(keeps)
        assert begun.wait(60)
        waiting = [stage.start(plain) for _ in range(4)]
        free.set()
        for run in waiting:
            eventually(ended(run), what="all that waited", seconds=60)


def test_who_drains_calls_the_others(stage: Stage, claims: Counter[UUID]) -> None:
    node, begun, free = _held()
    keeps, plain = agent_of(node, name="keeps"), agent_of(ends_with(1))
    with crew(stage, 2, claims) as (leaving, other):
        try:
            on_show(leaving.worker, [keeps.graph_id])
            held = stage.start(keeps)
            assert begun.wait(60)
            if fresh(held).owner == other.worker.id:  # it looked first, by polling
                leaving, other = other, leaving
            leaving.drain(60)
            on_show(leaving.worker, [plain.graph_id])
            out_of_call(other.worker)
            run = stage.start(plain)
            eventually(ended(run), what="the other taking it", seconds=60)
        finally:
            free.set()


def test_a_call_that_dies_with_its_worker_strands_nobody(stage: Stage) -> None:
    """The dead one is woken; the other finds the run when it polls."""
    agent = agent_of(ends_with(1))
    gone = stage.hire(is_dead=True)
    with working(stage, stage.hire()):
        eventually(lambda: _listening() == 1, what="its ears", seconds=60)
        on_show(gone, [agent.graph_id])
        run = stage.start(agent)
        eventually(ended(run), what="the run", seconds=60)


def test_a_ring_of_a_run_that_is_gone_is_a_ring_for_all(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    on_show(stage.hire(), [run.graph_id])
    run.id = UUID(int=0)
    assert called_for(run) == ""
