"""Migrations at the wrong moment, twice, over damaged or forged rows, and in races with claims and people."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from durableagents import Agent, Assistant, Context, End
from ledger import events as e
from ledger.errors import StaleLease
from runs.connections import dsn
from runs.engine.agents import registry
from runs.engine.journal import Batch
from runs.journal.claims import CLAIM
from runs.models import Run, Signal
from runs.services import lifecycle, signals
from runs.workers import failover
from tests.contrib.releases.moving import NAME, moved, old, renamed, rewritten
from tests.contrib.releases.test_migrating import go, names, parked, sound
from tests.integration.runs.stage import Stage, at_once, dump, events, fresh, kinds, output
from tests.integration.runs.test_damage import by_hand
from tests.waiting import eventually
from tests.world import OLGA, Done, Notes, Outside, Toolbox, agent_of


def of_one(*functions: Any, version: str = "1.0.0", **more: Any) -> Agent:
    return agent_of(*functions, name=NAME, version=version, **more)


# --- the run's row and its journal ------------------------------------------------------------------------------------


def test_a_forged_row_is_not_driven_by_another_version(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    go(run)
    by_hand("UPDATE runs_run SET graph_id = 'mover@2.0.0', version = '2.0.0', generation = 1 WHERE id = %s", run)
    assert stage.settle(run) == "operator"
    assert events(run, e.OperatorNeeded)[-1].reason == "forged_run" and names(outside) == ["first"]


def test_nobody_changes_a_version_without_the_event_nor_writes_the_event_twice(stage: Stage, tools: Toolbox) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    moved(run)
    (event,) = events(run, e.RunMigrated)
    from runs.services.command import journal

    with pytest.raises(DatabaseError, match="in generation 0"), transaction.atomic():
        journal(run.id, event, by=OLGA)
    assert kinds(run).count("RunMigrated") == 1
    sound(run)


@pytest.mark.parametrize("count", [1, 2])
def test_damaged_checkpoint_falls_back_to_move(stage: Stage, tools: Toolbox, outside: Outside, count: int) -> None:
    run = parked(stage, old(tools))
    rewritten(tools)
    moved(run)
    assert stage.settle(run) == "parked"
    by_hand("UPDATE runs_checkpoint SET state = '\\x00' WHERE run_id = %s AND generation = 1", run)
    if count == 2:  # and that of the visit left
        by_hand("UPDATE runs_checkpoint SET state = '\\x00' WHERE run_id = %s AND visit = 2", run)
    go(run, "resume")
    reads = len(outside.requests)
    assert stage.settle(run) == "completed" and names(outside) == ["first", "new end"]
    assert len(outside.requests) == reads + 1, "what is on record since the move is answered from there"
    assert output(run) == "new"


# --- other actors -----------------------------------------------------------------------------------------------------


def waits_for_a_lock(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE %s AND wait_event_type = 'Lock'", [name]
        )
        return cursor.fetchone() is not None


def test_old_worker_does_not_claim_a_run_that_is_being_moved(stage: Stage, tools: Toolbox) -> None:
    """Its claim saw two ready runs and waits for the first one's row; meanwhile the second changes its version."""
    agent = old(tools)
    first, second = stage.start(agent), stage.start(agent)
    renamed(tools)
    taken: list[Any] = []

    def take() -> None:
        with psycopg.connect(dsn(name="an old worker"), autocommit=True) as link:
            worker = stage.worker
            items = [worker.id, worker.ascii_host, worker.pid, ["mover@1.0.0"], 2, False]
            taken.extend(link.execute(CLAIM, items).fetchall())

    claiming = threading.Thread(target=take)
    with psycopg.connect(dsn(name="somebody else")) as holder:
        holder.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [first.id])
        claiming.start()
        eventually(lambda: waits_for_a_lock("an old worker%"))
        assert moved(second).is_moved
    claiming.join(20)
    assert [row[0] for row in taken] == [first.id] and fresh(second).owner is None
    (claimed,) = stage.claim(graphs=["mover@2.0.0"])
    assert (claimed.run_id, claimed.graph_id, claimed.generation) == (second.id, "mover@2.0.0", 1)
    sound(second)


def test_stale_worker_writes_nothing_into_a_moved_run(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    go(run)
    stale = stage.take(run)
    stage.wait(stale.leave("release", [e.RunReleased(reason="drain")], state="running"))
    assert moved(run).is_moved
    with pytest.raises(StaleLease):
        stage.wait(stale.commit(Batch([e.VisitEntered(node="settle", visit=9)])))
    assert stage.settle(run) == "completed" and names(outside) == ["first", "new end"]
    sound(run)


def test_two_operators_at_once_move_it_once(stage: Stage, tools: Toolbox) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    answers = at_once(*(lambda: moved(run) for _ in range(4)))
    assert sorted(x.how for x in answers) == ["refused"] * 3 + ["replayed"]
    assert {x.code for x in answers if not x.is_moved} == {"already"}
    assert kinds(run).count("RunMigrated") == 1 and fresh(run).generation == 1
    sound(run)


@pytest.mark.parametrize("make", [renamed, rewritten])
def test_a_signal_or_a_cancel_in_the_same_moment_is_not_lost(stage: Stage, tools: Toolbox, make: Any) -> None:
    for other in ("signal", "cancel"):
        registry.remove("mover@2.0.0")
        run = parked(stage, old(tools))
        make(tools)

        def act(run: Run = run, other: str = other) -> Any:
            if other == "signal":
                return signals.signal(run.id, "go", {}, by=OLGA)
            return lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="leave")

        at_once(lambda run=run: moved(run), act)
        stage.settle(run)
        row = fresh(run)
        if other == "cancel":
            assert row.state == "cancelled"
        else:
            (sent,) = Signal.objects.filter(run=run)
            assert row.state == "completed" or (sent.taken_by is None and row.state == "waiting_event")
        sound(run)


def test_a_model_request_whose_answer_was_lost_is_not_forgotten(stage: Stage, tools: Toolbox) -> None:
    """Otherwise its possible cost is unrecorded: the next to reach that place debits it."""
    mind = Assistant(name="mind", instructions="Think.", output=Done, offline=lambda messages, info: None)

    async def hold(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(mind, "once")).ref)

    async def skip(state: Notes, ctx: Context) -> str:
        return "last"

    async def last(state: Notes, ctx: Context) -> End:
        return End("new")

    run = stage.start(of_one(hold, assistants=[mind]))
    stage.kill_at = [("CP2", "model")]
    assert stage.drive() == "killed" and kinds(run)[-1] == "ModelRouted"
    failover.worker_died(stage.worker.id, "the test says so")
    of_one(skip, last, assistants=[mind], version="2.0.0")
    before = dump()
    found = moved(run, nodes={"hold": "skip"})
    assert (found.code, found.is_moved) == ("would_repeat", False) and "a model request at 0.1/1" in found.why
    assert dump() == before
