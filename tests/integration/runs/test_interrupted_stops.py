from __future__ import annotations

from typing import Any

import pytest

from durableagents import Context, End
from ledger import events as e
from ledger.errors import IllegalTransition
from runs.journal.postgres import PgJournal
from runs.models import Run, Wait
from runs.services.command import resolve
from runs.workers import failover, timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import FORGED, act
from tests.integration.runs.stage import Stage, events, fresh, now, output, waiting
from tests.integration.runs.test_callbacks import due
from tests.integration.runs.test_steering import is_sound
from tests.world import Item, Killed, Notes, Outside, Toolbox, agent_of


def stopped_half_way(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch, *, sleeps: bool = True) -> Run:
    """Return a run whose stop is recorded, whose worker died before releasing it, and whose cause is repaired."""
    world = {"is_wrong": True}

    async def node(state: Notes, ctx: Context) -> End:
        if world["is_wrong"]:
            await ctx.call(tools.pay, Item(name="po", amount=5000), grant=FORGED)
        if sleeps:
            await ctx.sleep(3600)
        return End("well")

    async def dies(self: Any, how: str, *args: Any, **more: Any) -> Any:
        raise Killed(how)

    run = stage.start(agent_of(node, tools=tools.all()))
    with monkeypatch.context() as patched:
        patched.setattr(PgJournal, "leave", dies)
        assert stage.drive() == "killed"
    assert [w.kind for w in waiting(run)] == ["operator"] and fresh(run).owner is not None
    failover.worker_died(stage.worker.id, "the test says so")
    Run.objects.filter(pk=run.pk).update(ready_at=now())
    world["is_wrong"] = False
    return run


def test_next_worker_stops_it(stage: Stage, tools: Toolbox, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stopped_half_way(stage, tools, monkeypatch)
    worker = stage.hire()
    assert stage.drive(worker) == "operator" and len(events(run, e.OperatorNeeded)) == 1, "asked once"
    assert [w.kind for w in waiting(run)] == ["operator"]
    is_sound(run)
    act("retry", run)
    assert stage.drive(worker) == "parked"
    due(run)
    timers.sweep()
    assert stage.drive(worker) == "completed" and output(run) == "well", "its timer wakes it"


def test_early_retry_is_heard(stage: Stage, tools: Toolbox, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stopped_half_way(stage, tools, monkeypatch, sleeps=False)
    act("retry", run)
    assert stage.drive(stage.hire()) == "completed"
    check_against_journal(run)


def test_early_cancel_ends_run(stage: Stage, tools: Toolbox, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stopped_half_way(stage, tools, monkeypatch)
    act("cancel", run)
    if str(fresh(run).state) != "cancelled":
        assert stage.drive(stage.hire()) == "cancelled"
    check_against_journal(run)


def test_a_wait_that_is_settled_is_not_settled_again_no_matter_who_asks(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(3600)
        return End()

    run = stage.start(agent_of(node))
    assert stage.drive() == "parked"
    due(run)
    (wait,) = waiting(run)
    stale = Wait.objects.get(pk=wait.id)
    timers.sweep()
    first = Wait.objects.get(pk=wait.id)
    assert first.resolution == "fired"
    first_at = first.resolved_at
    stale.refresh_from_db()
    with pytest.raises(IllegalTransition, match="the first outcome is final"):
        resolve(stale, "answered", by="user:olga", now=now())
    again = Wait.objects.get(pk=wait.id)
    assert (again.resolution, again.resolved_at) == ("fired", first_at)
