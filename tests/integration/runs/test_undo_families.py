from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.db import connection

from durableagents import (
    BusinessFailure,
    Context,
    DidNotHappen,
    End,
    Failure,
    Happened,
    ReplayClass,
    TransportError,
    Undo,
)
from ledger import events as e
from ledger.errors import IllegalTransition
from ledger.models import LedgerEntry
from runs.engine.journal import Effects
from runs.journal.lookups import Lookups
from runs.models import Run
from runs.services import callbacks, lifecycle, signals
from runs.services.families import reopening, wishes
from runs.services.families.reopening import FAMILY
from runs.services.undo import preview, undo_view
from runs.workers import timers
from tests.integration.runs.families_undone import all_sound, answer, everything, family
from tests.integration.runs.stage import Stage, events, follow_actions, fresh, head, kinds, waiting
from tests.unit.engine.undoings import Reversible, back, names
from tests.world import OLGA, Asked, Done, Notes, Outside, agent_of


@pytest.fixture
def tools(outside: Outside) -> Reversible:
    return Reversible(outside)


def child_of(run: Run) -> Run:
    return Run.objects.get(parent=run.pk)


def until_reopened(stage: Stage, run: Run) -> Run:
    for _ in range(40):
        child = Run.objects.filter(parent=run.pk).first()
        if child is not None and child.state == "compensating":
            return child
        if stage.drive() == "idle":
            timers.tell_parents()
            wishes.align()
    raise AssertionError("it is never reopened")


def test_completed_child_is_reopened_and_undone(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools, "ok"))
    everything(stage)
    child = child_of(run)
    assert names(outside) == ["post", "book", "unbook", "unpost"]
    assert (fresh(run).state, child.state, child.node) == ("failed", "cancelled", "_undo")
    assert kinds(child)[kinds(child).index("RunCompleted") :][:2] == ["RunCompleted", "UndoAsked"]
    (fact,) = LedgerEntry.objects.filter(run_id=child.pk, fact="compensated")
    assert (fact.slot, fact.tool) == ("0.1/1", "book")
    (end,) = events(child, e.RunCancelled)
    assert end.payload["asked_by"] == f"run:{run.pk}" and len(end.payload["undo"]["undone"]) == 1
    below, own = events(run, e.EffectUndone)
    assert (below.of_run, below.tool, own.of_run, own.tool) == (str(child.pk), "child", "", "post")
    (ended,) = events(run, e.RunFailed)
    assert [x["run"] for x in ended.payload["undo"]["undone"]] == [str(child.pk), ""]
    assert [x.tool_calls for x in events(run, e.ChildEnded)] == [1, 1], "its undo is debited to the parent once"
    assert head(child).tool_calls == 2 and head(run).tool_calls == 4
    all_sound()


def test_cancel_shows_and_undoes_the_child_too(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools, "ok", fails=False))
    everything(stage)
    assert [(x.what, x.run) for x in preview(run.id, run.graph_id).effects] == [
        ("reopen", str(child_of(run).pk)),
        ("undo", ""),
    ]
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    everything(stage)
    assert fresh(run).state == "cancelled" and names(outside) == ["post", "book", "unbook", "unpost"]
    assert list(undo_view(fresh(run)).became.values()) == ["undone", "undone"]
    all_sound()


def test_children_and_calls_are_undone_in_one_reverse_order(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def work(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": state.asked.text})
        return End({})

    helper = agent_of(work, name="helper", tools=tools.all())

    async def node(state: Notes, ctx: Context) -> None:
        await ctx.child(helper, Asked(text="1"))
        await ctx.call(tools.book, {"name": "2"})
        await ctx.child(helper, Asked(text="3"))
        raise Failure("the parent", code="parent")

    run = stage.start(agent_of(node, name="parent", tools=tools.all()))
    everything(stage)
    undone = [r.body for r in outside.requests if r.executed and r.tool == "unbook"]
    assert [json.loads(body)["name"] for body in undone] == ["book:3", "book:2", "book:1"]
    assert fresh(run).state == "failed"
    all_sound()


def test_a_grandchild_is_undone_by_its_own_parents_undo(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def leaf(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "leaf"})
        return End({})

    low = agent_of(leaf, name="leaf", tools=tools.all())

    async def between(state: Notes, ctx: Context) -> End:
        await ctx.child(low, Asked(text="x"))
        return End({})

    middle = agent_of(between, name="middle", tools=tools.all())

    async def node(state: Notes, ctx: Context) -> None:
        await ctx.child(middle, Asked(text="x"))
        raise Failure("the parent", code="parent")

    run = stage.start(agent_of(node, name="parent", tools=tools.all()))
    everything(stage)
    assert names(outside) == ["book", "unbook"] and fresh(run).state == "failed"
    assert {str(each.state) for each in Run.objects.exclude(pk=run.pk)} == {"cancelled"}
    assert head(run).tool_calls == 2
    all_sound()


def test_failed_undo_asks_in_the_child(stage: Stage, tools: Reversible, outside: Outside) -> None:
    outside.trouble("unbook", BusinessFailure("too late", code="late"))
    run = stage.start(family(tools, "ok"))
    everything(stage)
    child = child_of(run)
    assert (child.state, fresh(run).state) == ("waiting_human", "waiting_event")
    assert [w.kind for w in waiting(run)] == ["child"] and names(outside) == ["post", "book"]
    all_sound()
    for each in (run, child):
        with pytest.raises(IllegalTransition, match="is undoing its effects"):
            lifecycle.cancel(each.id, by=OLGA, justification="no more", effects="leave")
    answer(child, "leave")
    everything(stage)
    assert names(outside) == ["post", "book", "unpost"] and fresh(run).state == "failed"
    (left,) = events(run, e.EffectLeft)
    assert left.by == f"run:{child.pk}" and "1 of its effects remain" in left.payload["problem"]
    all_sound()


@pytest.mark.every(2)
@pytest.mark.parametrize("point", ["CP1", "CP2", "CP4", "CP6", "CP8"])
def test_death_in_the_childs_undo_is_survived(stage: Stage, tools: Reversible, outside: Outside, point: str) -> None:
    def became(args: Any, call: Any) -> Any:
        seen = [r for r in outside.requests if (r.slot, r.attempt) == (call.slot, call.attempt)]
        return Happened(Done(ref="unpost")) if seen else DidNotHappen()

    outside.hook = became
    run = stage.start(family(tools, "ok"))
    stage.kill_at = [(point, "unbook" if point != "CP8" else "")]
    everything(stage)
    assert stage.kill_at == [] and fresh(run).state == "failed"
    assert names(outside) == ["post", "book", "unbook", "unpost"]
    all_sound()


def test_it_is_reopened_once_however_often_it_is_looked_for(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools, "ok"))
    child = until_reopened(stage, run)
    assert wishes.align() == 0, "it is under way"
    assert not list(wishes._rows(wishes._CANCEL, None)), "nobody tries to cancel what undoes, sweep after sweep"
    with pytest.raises(IllegalTransition, match="reopened, and only once"):
        reopening.reopen(child.pk, run.pk)
    all_sound()
    everything(stage)
    with pytest.raises(IllegalTransition, match="reopened, and only once"):
        reopening.reopen(child.pk, run.pk)
    assert kinds(child).count("UndoAsked") == 1 and names(outside).count("unbook") == 1
    assert timers.tell_parents() == 0 and wishes.align() == 0
    all_sound()


def test_a_reopened_child_is_nobodys_to_cancel_or_retry_and_its_page_says_so(stage: Stage, tools: Reversible) -> None:
    run = stage.start(family(tools, "ok"))
    child = until_reopened(stage, run)
    with pytest.raises(IllegalTransition, match="is undoing its effects"):
        lifecycle.cancel(child.pk, by=OLGA, justification="no more", effects="leave")
    seen = undo_view(fresh(child))
    assert (seen.state, [x.tool for x in seen.effects]) == ("under_way", ["book"])
    lifecycle.pause(child.pk, by=OLGA, justification="a moment")
    all_sound()
    everything(stage)
    assert fresh(child).state == "paused" and fresh(run).state == "waiting_event"
    assert lifecycle.resume(child.pk, by=OLGA, justification="on").state == "compensating"
    everything(stage)
    assert fresh(child).state == "cancelled" and fresh(run).state == "failed"
    with pytest.raises(IllegalTransition):
        lifecycle.retry(child.pk, by=OLGA, justification="again")
    all_sound()


@pytest.mark.parametrize("effects", ["undo", "leave"])
def test_a_child_that_undoes_and_was_held_back_goes_on_when_its_parent_is_cancelled(
    stage: Stage, tools: Reversible, outside: Outside, monkeypatch: pytest.MonkeyPatch, effects: str
) -> None:
    run = stage.start(family(tools, "wait", fails=False))
    everything(stage)
    child = child_of(run)
    outside.trouble("unbook", BusinessFailure("not now"))
    lifecycle.cancel(child.pk, by=OLGA, justification="no more", effects="undo")
    everything(stage)
    assert (fresh(child).state, fresh(child).node) == ("waiting_human", "_undo")
    lifecycle.pause(run.pk, by=OLGA, justification="look at it")
    assert fresh(child).state == "paused"
    with monkeypatch.context() as dies:
        follow_actions(dies, is_all=True)  # the process that cancels it dies right after the commit
        lifecycle.cancel(run.pk, by=OLGA, justification="no more", effects=effects)
    stage.drive()
    everything(stage)
    assert fresh(child).state == "waiting_human"
    answer(child, "retry")
    everything(stage)
    assert fresh(child).state == "cancelled" and fresh(run).state == "cancelled"
    assert names(outside).count("unbook") == 1
    all_sound()


def test_child_stays_paused_while_its_parent_is(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools, "ok"))
    child = until_reopened(stage, run)
    lifecycle.pause(run.pk, by=OLGA, justification="look at it")
    lifecycle.pause(child.pk, by=FAMILY, justification="as its parent")
    assert fresh(run).node == "_undo" and (fresh(run).state, fresh(child).state) == ("paused", "paused")
    everything(stage)
    assert fresh(child).state == "paused"
    lifecycle.resume(run.pk, by=OLGA, justification="go on")
    everything(stage)
    assert fresh(child).state == "cancelled" and fresh(run).state == "failed"
    all_sound()


def test_late_end_is_undone(stage: Stage, tools: Reversible, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is read, the child's completion arrives, and the plan still calls the child running."""
    run = stage.start(family(tools, "ok", fails=False))
    while child_of(run).state != "completed" if Run.objects.filter(parent=run.pk).exists() else True:
        assert stage.drive() != "idle"
    assert not events(run, e.ChildEnded)
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    read, items = Lookups.effects, []

    async def and_then_it_is_told(lookups: Lookups) -> Effects:
        effects = await read(lookups)
        if not items:
            items.append(await asyncio.to_thread(tell_elsewhere))
        return effects

    monkeypatch.setattr(Lookups, "effects", and_then_it_is_told)
    everything(stage)
    assert items == [1] and kinds(run).index("ChildEnded") < kinds(run).index("UndoBegun")
    assert (fresh(run).state, child_of(run).state) == ("cancelled", "cancelled")
    assert names(outside) == ["post", "book", "unbook", "unpost"]
    assert "OperatorNeeded" not in kinds(run)
    all_sound()


def tell_elsewhere() -> int:
    """Notify parents on another connection, as another process does."""
    try:
        return timers.tell_parents()
    finally:
        connection.close()


def test_childs_effect_after_the_plan_is_undone(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def work(state: Notes, ctx: Context) -> End:
        await ctx.signal("go")
        await ctx.call(tools.book, {"name": "late"})
        return End({})

    helper = agent_of(work, name="helper", tools=tools.all())

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.post, {"name": "own"})
        await ctx.child(helper, Asked(text="x"))
        return End({})

    run = stage.start(agent_of(node, name="parent", tools=tools.all()))
    everything(stage)
    child = child_of(run)
    assert [x.what for x in preview(run.id, run.graph_id).effects] == ["undo"], "it has had no effect yet"
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    assert stage.drive() == "parked" and fresh(run).is_undoing and names(outside) == ["post"]
    signals.signal(child.pk, "go", {}, by=OLGA)
    assert stage.drive() == "completed" and names(outside) == ["post", "book"]
    everything(stage)
    assert names(outside) == ["post", "book", "unbook", "unpost"]
    assert (fresh(run).state, fresh(child).state) == ("cancelled", "cancelled")
    all_sound()


def test_a_callback_after_fail_the_run_is_put_to_a_person(stage: Stage, tools: Reversible, outside: Outside) -> None:
    hire = tools._later("hire", ReplayClass.UNSAFE_ON_REPLAY)
    object.__setattr__(hire, "undo", Undo(tools.unrent, back))

    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.buy, {"name": "a", "amount": 1000})
        await ctx.call(hire, {"name": "b"})

    outside.trouble("hire", TransportError("cut"))
    run = stage.start(agent_of(node, tools=[*tools.all(), hire]))
    assert stage.settle(run) == "parked"
    stage.reconcile(run, "fail")
    assert stage.settle(run) == "parked" and fresh(run).is_undoing, kinds(run)
    url = outside.urls["0.1/2"]
    callbacks.receive_callback(url.rpartition("/")[2], {"ref": "hire:b"})
    stage.decide(run)
    assert stage.settle(run) == "parked"
    (question,) = waiting(run)
    assert question.detail["title"].startswith("hire (0.1/2) is not undone: an answer that came late")
    all_sound()
    answer(run, "leave")
    assert stage.settle(run) == "failed" and names(outside)[-1] == "refund"
    all_sound()
