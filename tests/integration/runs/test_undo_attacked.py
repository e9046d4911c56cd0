"""Undo without crashes: requests at the worst moment, earlier waits, rules that end a run."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from durableagents import Budget, Context, End, Failure
from ledger.errors import IllegalTransition
from runs.models import Run, Wait
from runs.services import lifecycle, signals
from runs.services.budgets import raising
from runs.services.families.reopening import FAMILY
from runs.workers import timers
from tests.integration.runs import test_keys
from tests.integration.runs.families_undone import everything, family
from tests.integration.runs.stage import Stage, fresh, in_thread, kinds, now, problems, waiting
from tests.integration.runs.test_budget_time import let_time_pass
from tests.integration.runs.test_undo_families import until_reopened
from tests.unit.engine.undoings import Reversible, names
from tests.world import OLGA, Notes, Outside, agent_of


@pytest.fixture
def tools(outside: Outside) -> Reversible:
    return Reversible(outside)


@pytest.mark.parametrize("how", ["undo", "leave"])
def test_who_cancels_between_two_nodes_is_heard(stage: Stage, tools: Reversible, outside: Outside, how: str) -> None:
    """The checkpoint is taken after the request."""

    async def node(state: Notes, ctx: Context) -> str:
        if state.seen:
            await ctx.signal("never")
        await ctx.call(tools.book, {"name": "a"})
        in_thread(lambda: lifecycle.cancel(run.id, by=OLGA, justification="no more", effects=how))
        state.seen.append("went on")
        return "node"

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.settle(run)
    assert str(fresh(run).state) == "cancelled" and problems(run) == []
    assert names(outside) == (["book", "unbook"] if how == "undo" else ["book"]), kinds(run)


def test_cancel_leaving_effects_beats_a_failure(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "a"})
        in_thread(lambda: lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="leave"))
        raise Failure("too late", code="too_late")

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.settle(run)
    assert str(fresh(run).state) == "cancelled" and names(outside) == ["book"] and problems(run) == []


def half_undone(stage: Stage, tools: Reversible) -> Run:
    """Return a run cancelled while paused for its budget, which asks a person about an effect to undo."""

    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.call(tools.buy, {"name": "b", "amount": 1000})
        await ctx.call(tools.order, {"name": "c"})

    run = stage.start(agent_of(node, tools=tools.all(), budget=Budget(tool_calls=2)))
    stage.settle(run)
    assert [wait.kind for wait in waiting(run)] == ["budget"]
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    stage.settle(run)
    return run


def still_asked(stage: Stage, tools: Reversible) -> Run:
    """Return a run whose time ran out in the failing step it undoes for: it is paused and asks for more."""

    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.call(tools.buy, {"name": "b", "amount": 1000})
        in_thread(lambda: let_time_pass(run))
        raise Failure("no", code="no")

    run = stage.start(agent_of(node, tools=tools.all(), budget=Budget(wall_seconds=60)))
    stage.settle(run)
    return run


def test_old_budget_wait_ends_nothing_half_undone(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = still_asked(stage, tools)
    assert str(fresh(run).state) == "paused" and [wait.kind for wait in waiting(run)] == ["budget"]
    lifecycle.resume(run.id, by=OLGA, justification="nobody need raise that")
    stage.settle(run)
    assert fresh(run).is_undoing and {wait.kind for wait in waiting(run)} == {"approval", "budget"}
    with pytest.raises(IllegalTransition, match="to which caps don't apply"):
        raising.set_budget(run.id, Budget(tool_calls=2), by=OLGA, justification="it was said so")
    Wait.objects.filter(run_id=run.id, kind="budget").update(deadline=now() - timedelta(seconds=1))
    timers.sweep()
    stage.settle(run)
    assert fresh(run).is_undoing and str(fresh(run).state) == "waiting_human"
    stage.decide(run)
    stage.settle(run)
    assert str(fresh(run).state) == "failed" and names(outside)[-1] == "unbook"


def test_who_pauses_a_run_that_undoes_can_set_it_going_again(stage: Stage, tools: Reversible, outside: Outside) -> None:
    """It had asked for more budget before, which nobody has to raise, or could."""
    run = half_undone(stage, tools)
    assert {wait.kind for wait in waiting(run)} == {"approval"}, "its budget is asked for no more"
    lifecycle.pause(run.id, by=OLGA, justification="a look first")
    assert str(fresh(run).state) == "paused"
    lifecycle.resume(run.id, by=OLGA, justification="looked at")
    stage.decide(run)
    stage.settle(run)
    assert str(fresh(run).state) == "cancelled" and names(outside)[-1] == "unbook" and problems(run) == []


def test_open_budget_question_holds_no_undo(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = still_asked(stage, tools)
    for _ in range(2):
        lifecycle.resume(run.id, by=OLGA, justification="looked at")
        stage.settle(run)
        lifecycle.pause(run.id, by=OLGA, justification="a look first")
    lifecycle.resume(run.id, by=OLGA, justification="looked at")
    stage.decide(run)
    stage.settle(run)
    assert str(fresh(run).state) == "failed" and names(outside)[-1] == "unbook" and problems(run) == []


def test_nor_one_that_undoes_as_its_parent_does(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools, "ok"))
    child = until_reopened(stage, run)
    until = now() + timedelta(days=7)
    Wait.objects.create(
        id=uuid4(), run=child, slot="budget/1", kind="budget", detail={}, opened_at=now(), deadline=until
    )
    lifecycle.pause(run.pk, by=OLGA, justification="look at it")
    lifecycle.pause(child.pk, by=FAMILY, justification="as its parent")
    lifecycle.resume(run.pk, by=OLGA, justification="go on")
    everything(stage)
    assert (str(fresh(child).state), str(fresh(run).state)) == ("cancelled", "failed")


def test_run_stopped_for_an_operator_can_be_undone(stage: Stage, tools: Reversible, outside: Outside) -> None:
    rounds: list[int] = []

    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.buy, {"name": "b", "amount": 1000})
        rounds.append(1)
        if len(rounds) == 1:
            await ctx.call(tools.book, {"name": "x"})
            await ctx.signal("go")
        else:
            await ctx.call(tools.order, {"name": "y"})

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.settle(run)
    signals.signal(run.id, "go", None, by=OLGA)
    stage.settle(run)
    assert [wait.kind for wait in waiting(run)] == ["operator"]
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    stage.settle(run)
    assert [wait.kind for wait in waiting(run)] == ["approval"], "of the undo's own gate"
    stage.decide(run)
    stage.settle(run)
    assert str(fresh(run).state) == "cancelled" and problems(run) == [], kinds(run)


def test_replaced_run_is_undone_by_its_agents_rule(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.signal("go")

    agent = agent_of(node, tools=tools.all())
    first = test_keys.begin(agent.name, "refuse").run
    stage.settle(first)
    test_keys.begin(agent.name, "replace")
    stage.settle(first)
    assert str(fresh(first).state) == "cancelled" and names(outside)[:2] == ["book", "unbook"]
