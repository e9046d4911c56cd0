from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from durableagents import Agent, Context, DidNotHappen, End, ReplayClass, ToolCall, tool
from ledger.errors import IllegalTransition
from runs.models import Incident, Process, Run
from runs.workers import failover
from tests.integration.runs.stage import Stage, dump, fresh, in_thread, now
from tests.integration.runs.test_belied import read_by_an_operator
from tests.world import Done, Item, Notes, agent_of


@pytest.fixture
def line() -> Iterator[threading.Event]:
    """Holds its sender until set."""
    line = threading.Event()
    yield line
    line.set()


def faxing(line: threading.Event, **more: Any) -> Agent:
    @tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, timeout=0.2, **more)
    def fax(args: Item, call: ToolCall) -> Done:
        line.wait(60)
        return Done(ref="fax")

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(fax, Item(name="letter"))).ref)

    return agent_of(node, tools=[fax])


@pytest.fixture
def in_doubt(stage: Stage, line: threading.Event) -> Run:
    """Return a run whose call timed out while its thread continues."""

    run = stage.start(faxing(line))
    assert stage.drive() == "parked"
    return run


def test_a_call_is_not_sent_again_while_its_sender_lives(stage: Stage, in_doubt: Run) -> None:
    before = dump()
    with pytest.raises(IllegalTransition, match="still alive and may still be sending"):
        in_thread(lambda: stage.reconcile(in_doubt, "did_not"))
    assert dump() == before


def test_and_is_once_its_sender_is_gone(stage: Stage, in_doubt: Run) -> None:
    failover.worker_died(stage.worker.id, "the test says so")
    stage.reconcile(in_doubt, "did_not")
    assert fresh(in_doubt).state == "running"


def test_a_dead_sender_is_not_shown_as_running(stage: Stage, line: threading.Event) -> None:
    line.set()
    stage.kill_at = [("CP4", "fax")]
    run = stage.start(faxing(line))
    assert stage.settle(run) == "parked"
    page = read_by_an_operator(run)
    assert "has ended (worker " in page and "may still be running" not in page and "sender_is_gone" not in page


def test_that_the_row_of_its_sender_is_gone_is_no_proof_that_it_is(stage: Stage, in_doubt: Run) -> None:
    """Rows of the last week are kept, so someone deleted it."""
    Process.objects.filter(pk=stage.worker.id).delete()
    before = dump()
    with pytest.raises(IllegalTransition, match="no longer says which worker"):
        in_thread(lambda: stage.reconcile(in_doubt, "did_not"))
    assert dump() == before
    stage.reconcile(in_doubt, "did_not", sender_is_gone=True)
    assert fresh(in_doubt).state == "running"


def test_that_it_happened_may_be_said_at_any_time(stage: Stage, in_doubt: Run) -> None:
    stage.reconcile(in_doubt, "happened", {"ref": "the fax's journal"})
    assert stage.drive() == "completed"


def test_and_every_sender_before_it_that_lost_the_run(stage: Stage, line: threading.Event) -> None:
    """One was suspected dead, the next is proven dead: the first may still be sending."""

    async def nothing_there(args: Item, call: ToolCall) -> DidNotHappen:
        return DidNotHappen()

    run, first, second = stage.start(faxing(line, reconcile=nothing_there)), stage.hire(), stage.hire()
    stage.kill_at = [("CP2", "fax")]
    assert stage.drive(first) == "killed"
    in_thread(lambda: failover.worker_died(first.id, "silent for too long", Incident.Cause.SUSPICION))
    Run.objects.filter(pk=run.id).update(ready_at=now())
    assert stage.drive(second) == "parked"
    failover.worker_died(second.id, "reaped")
    before = dump()
    with pytest.raises(IllegalTransition, match="still alive and may still be sending"):
        in_thread(lambda: stage.reconcile(run, "did_not"))
    assert dump() == before
    Process.objects.filter(pk=first.id).update(end_cause=Incident.Cause.PROOF)
    stage.reconcile(run, "did_not")
    assert fresh(run).state == "running"
