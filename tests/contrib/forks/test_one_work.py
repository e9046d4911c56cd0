"""Forks and restarts of one run: none repeats another's work without a person's verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durableagents import Agent, Context, End, Failure, Renew
from ledger.errors import IllegalTransition
from runs.engine.budget import Budget
from runs.models import Run
from runs.services import lifecycle, signals
from runs.services.families import wishes
from tests.contrib.forks.test_forks import AGAIN, asked, fork, mailer, say
from tests.contrib.forks.test_forks_beside import WHY
from tests.integration.runs.stage import Mood, Stage, at_once, dump, fresh, problems
from tests.integration.runs.test_children import Asked, everything, parent_of
from tests.integration.runs.test_raising import raised
from tests.world import OLGA, SHOP, Done, Item, Notes, Outside, Toolbox, agent_of


def payer(tools: Toolbox, mood: Mood, name: str) -> Agent:
    async def pay(state: Notes, ctx: Context) -> End:
        if mood.is_bad:
            raise Failure("no luck")
        await ctx.call(tools.order, Item(name="a"))
        return End()

    return agent_of(pay, tools=tools.all(), name=name)


@pytest.fixture
def failed(stage: Stage, tools: Toolbox, mood: Mood) -> Run:
    run = stage.start(payer(tools, mood, "one-work"))
    assert stage.settle(run) == "failed"
    return fresh(run)


def idle(stage: Stage, origin: Run) -> Run:
    made = fork(origin, 1)
    assert stage.settle(made) == "failed"
    return fresh(made)


def is_refused(act: Callable[..., Run], run: Run, beside_whom: Run) -> None:
    before = dump()
    with pytest.raises(IllegalTransition, match=f"run {beside_whom.pk}"):
        act(run.pk, by=OLGA, justification=WHY)
    assert dump() == before, "what is refused changes nothing"


def test_a_fork_asks_where_a_fork_of_a_fork_did_it(stage: Stage, mood: Mood, failed: Run, outside: Outside) -> None:
    a = idle(stage, failed)
    mood.is_bad = False
    b = fork(a, 1)
    assert stage.settle(b) == "completed"
    c = fork(failed, 1)
    assert stage.settle(c) == "parked" and asked(c).kind == "input"
    assert len(outside.executed("order")) == 1
    is_refused(lifecycle.retry, failed, c)
    assert problems(c) == []


def test_a_fork_asks_where_its_origins_origin_did_it(stage: Stage, mood: Mood, failed: Run, outside: Outside) -> None:
    a = idle(stage, failed)
    mood.is_bad = False
    lifecycle.retry(failed.pk, by=OLGA, justification=WHY)
    assert stage.settle(failed) == "completed"
    b = fork(a, 1)
    assert stage.settle(b) == "parked" and asked(b).kind == "input"
    assert len(outside.executed("order")) == 1


def test_an_idle_fork_is_not_retried_once_its_origin_did_it(stage: Stage, mood: Mood, failed: Run) -> None:
    a = idle(stage, failed)
    mood.is_bad = False
    lifecycle.retry(failed.pk, by=OLGA, justification=WHY)
    is_refused(lifecycle.retry, a, failed)  # while that one works
    assert stage.settle(failed) == "completed"
    is_refused(lifecycle.retry, a, failed)  # after it has ended


def test_idle_fork_goes_on_if_nothing_was_done(stage: Stage, mood: Mood, failed: Run, outside: Outside) -> None:
    a = idle(stage, failed)
    idle(stage, failed)
    mood.is_bad = False
    lifecycle.retry(a.pk, by=OLGA, justification=WHY)
    assert stage.settle(a) == "completed" and len(outside.executed("order")) == 1


def test_a_fork_goes_on_alongside_what_it_was_told_of(
    stage: Stage, tools: Toolbox, mood: Mood, outside: Outside
) -> None:
    async def pay(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="a"))
        if mood.is_bad:
            raise Failure("no luck")
        return End()

    run = stage.start(agent_of(pay, tools=tools.all(), name="one-work-told"))
    assert stage.settle(run) == "failed"
    made = fork(fresh(run), 1)
    assert stage.settle(made) == "parked" and asked(made).kind == "input"
    lifecycle.pause(made.pk, by=OLGA, justification=WHY)
    lifecycle.resume(made.pk, by=OLGA, justification=WHY)
    assert str(fresh(made).state) == "waiting_human" and len(outside.executed("order")) == 1


def test_what_a_child_did_was_done(stage: Stage, tools: Toolbox, mood: Mood, outside: Outside) -> None:
    async def helping(state: Notes, ctx: Context) -> End:
        return End(Done(ref=(await ctx.call(tools.mail, Item(name="m"))).ref))

    helper = agent_of(helping, tools=tools.all(), name="one-work-helper", output=Done)

    async def first(state: Notes, ctx: Context) -> str:
        await ctx.signal("go")
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        await ctx.child(helper, Asked(text="a"))
        raise Failure("no luck")

    run = stage.start(agent_of(first, second, tools=tools.all(), name="one-work-with-child"))
    everything(stage)
    lifecycle.pause(run.pk, by=OLGA, justification=WHY)
    made = fork(fresh(run), 1)
    signals.signal(made.pk, "go", None, by=SHOP)
    everything(stage)
    say(made, AGAIN)
    everything(stage)
    assert str(fresh(made).state) == "failed" and len(outside.executed("mail")) == 1
    is_refused(lifecycle.resume, run, made)


def renewer(tools: Toolbox, mood: Mood, name: str) -> Agent:
    async def work(state: Notes, ctx: Context) -> Any:
        if mood.is_bad and not state.seen:
            state.seen.append("x")
            return Renew(state)
        await ctx.signal("go")
        if mood.is_bad:
            raise Failure("no luck")
        await ctx.call(tools.mail, Item(name="m"))
        return End()

    return agent_of(work, tools=tools.all(), name=name)


@pytest.mark.parametrize("how", ["paused", "failed"])
def test_continuation_waits_for_a_competing_fork(
    stage: Stage, tools: Toolbox, mood: Mood, outside: Outside, how: str
) -> None:
    run = stage.start(renewer(tools, mood, f"one-work-{how}"))
    stage.settle(run)
    successor = fresh(run).successors().last()
    assert successor is not None
    stage.settle(successor)
    if how == "paused":
        lifecycle.pause(successor.pk, by=OLGA, justification=WHY)
    else:
        signals.signal(successor.pk, "go", None, by=SHOP)
        assert stage.settle(successor) == "failed"
    mood.is_bad = False
    made = fork(fresh(run), 1)
    is_refused(lifecycle.resume if how == "paused" else lifecycle.retry, fresh(successor), made)
    signals.signal(made.pk, "go", None, by=SHOP)
    if stage.settle(made) == "parked":
        say(made, AGAIN)
        stage.settle(made)
    assert str(fresh(made).state) == "completed" and len(outside.executed("mail")) == 1
    is_refused(lifecycle.resume if how == "paused" else lifecycle.retry, fresh(successor), made)


def test_a_child_does_not_go_on_alongside_a_fork_of_its_parent(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(parent_of(mailer(tools, "one-work-child"), "a"))
    everything(stage)
    child = Run.objects.get(parent=run.pk)
    lifecycle.pause(run.pk, by=OLGA, justification=WHY)
    everything(stage)
    made = fork(fresh(run), 1)
    everything(stage)
    say(made, AGAIN)
    everything(stage)
    mine = Run.objects.get(parent=made.pk)
    lifecycle.pause(mine.pk, by=OLGA, justification=WHY)
    lifecycle.resume(mine.pk, by=OLGA, justification=WHY)  # its parent had a verdict for it
    signals.signal(mine.pk, "go", None, by=SHOP)
    everything(stage)
    assert len(outside.executed("mail")) == 1
    is_refused(lifecycle.resume, child, made)


def test_budgeted_child_goes_on_once_no_fork_competes(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    async def order(state: Notes, ctx: Context) -> End:
        for name in ("a", "b"):
            await ctx.call(tools.order, Item(name=name))
        return End()

    helper = agent_of(order, tools=tools.all(), name="one-work-capped")

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.child(helper, Asked(text="x"), budget=Budget(tool_calls=1))
        return End()

    run = stage.start(agent_of(node, name="one-work-above"))
    everything(stage)
    child = Run.objects.get(parent=run.pk)
    assert str(fresh(child).state) == "paused"
    made = fork(fresh(run), 1)
    raised(child, tool_calls=9)
    assert str(fresh(child).state) == "paused" and wishes.align() == 0, "a fork of its parent is at work"
    lifecycle.cancel(made.pk, by=OLGA, justification=WHY, effects="leave")
    everything(stage)
    assert wishes.align() <= 1
    everything(stage)
    assert str(fresh(child).state) == str(fresh(run).state) == "completed"
    assert len(outside.executed("order")) == 2 and problems(child) == problems(run) == []


def test_of_an_origin_and_its_fork_one_is_retried(stage: Stage, tools: Toolbox, mood: Mood, outside: Outside) -> None:
    """Each would find the other ended; they share one lock."""
    run = stage.start(payer(tools, mood, "one-work-raced"))
    assert stage.settle(run) == "failed"
    made = idle(stage, fresh(run))
    got = at_once(*(lambda each=each: lifecycle.retry(each.pk, by=OLGA, justification=WHY) for each in (run, made)))
    assert sum(isinstance(x, IllegalTransition) for x in got) == 1, got
    mood.is_bad = False
    for each in (run, made):
        stage.settle(each)
    assert len(outside.executed("order")) == 1
