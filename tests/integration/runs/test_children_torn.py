from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from durableagents import Agent, Budget, ChildFailure, Context, End
from ledger.errors import IllegalTransition
from ledger.models import Head
from runs.models import Run, Wait
from runs.services import lifecycle, signals
from runs.services.budgets.raising import set_budget
from runs.services.families import ends, wishes
from runs.workers import failover, timers
from tests.integration.runs.families import ended, with_child
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, at_once, follow_actions, fresh, head, kinds, now, output, waiting
from tests.integration.runs.test_children import children, crowd_of, everything, helper, parent_of, whole
from tests.integration.runs.wire import LossyWire
from tests.world import OLGA, SHOP, Asked, Item, Notes, Outside, Toolbox, agent_of

__all__ = ["helper"]  # the fixture


# --- at the worst moment ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["cancel", "pause"])
def test_a_parent_that_is_stopped_before_its_child_is_made_leaves_none(stage: Stage, helper: Agent, what: str) -> None:
    run = stage.start(parent_of(helper, "a"))

    def stop(point: str, tool: str) -> None:
        if point == "CP1":
            stage.at = lambda point, tool: None
            at_once(lambda: getattr(lifecycle, what)(run.pk, by=OLGA, justification="not now"))

    stage.at = stop
    assert stage.drive() == ("cancelled" if what == "cancel" else "paused")
    assert not children(run) and "ChildStarted" not in kinds(run)
    if what == "pause":
        lifecycle.resume(run.pk, by=OLGA, justification="go on")
        everything(stage)
        assert output(run) == ["order:a"] and len(children(run)) == 1
    whole(run, *children(run))


@pytest.mark.every(5)
@pytest.mark.parametrize(("what", "nth"), [*itertools.product(["question", "answer"], range(1, 9))])
def test_losses_make_one(stage: Stage, helper: Agent, outside: Outside, wire: LossyWire, nth: int, what: Any) -> None:
    """Lost answers around the claim, the intent with the child in it, and the park."""
    stage.start(parent_of(helper, "warm"))
    everything(stage)
    outside.requests.clear()
    run = stage.start(parent_of(helper, "a"))
    wire.lose((nth, what))
    try:
        stage.drive()
    except psycopg.OperationalError:
        Run.objects.filter(pk=run.pk, owner__isnull=False).update(owner=None, ready_at=now())
    everything(stage)
    assert output(run) == ["order:a"] and len(children(run)) == 1 and len(outside.executed()) == 1
    assert kinds(run).count("ChildStarted") == kinds(run).count("ChildEnded") == 1
    whole(run, *children(run))


def test_a_retry_at_the_moment_its_end_is_told_is_one_or_the_other(stage: Stage, helper: Agent) -> None:
    for _ in range(6):
        run, child = ended(stage, helper, "fail")
        retry, tell = partial(act, "retry", child), partial(ends.tell_parent, child.pk)
        retried, *found = at_once(retry, tell, tell)
        if isinstance(retried, IllegalTransition):
            assert sorted(found) == [False, True] and str(fresh(child).state) == "failed"
        else:
            assert found == [False, False] and not fresh(child).is_told
        everything(stage)
        assert output(run) == ["failed: no_luck"] and kinds(run).count("ChildEnded") == 1
        whole(run, child)


def test_an_end_told_under_a_driving_worker_is_read_before_it_parks(stage: Stage, helper: Agent) -> None:
    run = stage.start(parent_of(helper, "a"))
    other = stage.hire()

    def end_it(point: str, tool: str) -> None:
        if point == "CP8":
            stage.at = lambda point, tool: None
            at_once(lambda: lifecycle.cancel(children(run)[0].pk, by=OLGA, justification="not this one"))

    stage.at = end_it
    assert stage.drive() == "completed", "the park was refused, and what had come was read"
    assert output(run) == ["cancelled: "] and stage.drive(other) == "idle"
    whole(run, *children(run))


def test_a_parent_cancelled_by_its_worker_takes_its_children_along(stage: Stage, helper: Agent) -> None:
    run = stage.start(crowd_of(helper, "wait", "wait"))

    def cancel(point: str, tool: str) -> None:
        if point == "CP8":
            stage.at = lambda point, tool: None
            at_once(lambda: lifecycle.cancel(run.pk, by=OLGA, justification="not wanted"))

    stage.at = cancel
    assert stage.drive() == "cancelled" and len(children(run)) == 2
    assert wishes.align() == 2
    timers.tell_parents()
    assert {str(x.state) for x in children(run)} == {"cancelled"} and kinds(run).count("ChildEnded") == 2
    whole(run, *children(run))


# --- a parent that fails ----------------------------------------------------------------------------------------------


def fails_beside(helper: Agent, tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        found = await ctx.gather(ctx.child(helper, Asked(text="wait")), ctx.call(tools.mail, Item(name="letter")))
        return End([x.ref for x in found])

    return agent_of(node, name="beside", tools=tools.all())


def in_doubt_beside(stage: Stage, helper: Agent, tools: Toolbox) -> tuple[Run, Run]:
    run = stage.start(fails_beside(helper, tools))
    stage.kill_at = [("CP4", "mail")]
    assert stage.drive() == "killed"
    failover.worker_died(stage.worker.id, "the test says so")
    stage.worker = stage.hire()
    for _ in range(3):
        stage.drive()
    (child,) = children(run)
    return run, child


def failed_beside(stage: Stage, helper: Agent, tools: Toolbox) -> tuple[Run, Run]:
    run, child = in_doubt_beside(stage, helper, tools)
    stage.reconcile(run, "fail", sender_is_gone=True)
    stage.drive()
    assert str(fresh(run).state) == "failed" and str(fresh(child).state) == "waiting_event"
    return run, child


def test_retried_parent_waits_for_its_child(stage: Stage, helper: Agent, tools: Toolbox, outside: Outside) -> None:
    run, child = failed_beside(stage, helper, tools)
    assert wishes.align() == 0 and str(fresh(child).state) == "waiting_event", "it goes on"
    act("retry", run)
    assert {w.kind for w in waiting(run)} >= {"child"}
    stage.drive()
    signals.signal(child.pk, "go", None, by=SHOP)
    stage.drive()
    timers.tell_parents()
    assert len(children(run)) == 1 and kinds(run).count("ChildEnded") == 1
    assert not [w for w in waiting(run) if w.kind == "child"]
    whole(run, child)


def test_retry_finds_a_child_that_ended_since_the_failure(stage: Stage, helper: Agent, tools: Toolbox) -> None:
    run, child = failed_beside(stage, helper, tools)
    signals.signal(child.pk, "go", None, by=SHOP)
    stage.drive()
    timers.tell_parents()
    assert kinds(run).count("ChildEnded") == 1 and head(run).tool_calls >= 1
    act("retry", run)
    stage.drive()
    assert not [w for w in waiting(run) if w.kind == "child"] and len(children(run)) == 1
    whole(run, child)


def test_paused_child_goes_on(stage: Stage, helper: Agent, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    run, child = in_doubt_beside(stage, helper, tools)
    lifecycle.pause(run.pk, by=OLGA, justification="look at it")
    assert str(fresh(child).state) == "paused"
    with monkeypatch.context() as dies:
        follow_actions(dies, is_all=True)  # the process that resumes it dies right after the commit
        lifecycle.resume(run.pk, by=OLGA, justification="go on")
    stage.reconcile(run, "fail", sender_is_gone=True)
    stage.drive()
    assert str(fresh(run).state) == "failed" and str(fresh(child).state) == "paused"
    assert wishes.align() == 1 and str(fresh(child).state) == "waiting_event"
    whole(run, child)


# --- a used-up budget -------------------------------------------------------------------------------------------------


def test_a_retry_starts_a_child_again_though_the_last_ones_used_more_than_the_cap(stage: Stage, helper: Agent) -> None:

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.child(helper, Asked(text="fail"))).ref)

    run = lifecycle.start(agent_of(node, name="strict").graph_id, {}, by=SHOP, budget=Budget(tool_calls=0))
    stage.drive(), stage.drive()
    (first,) = children(run)
    assert str(fresh(first).state) == "paused"
    set_budget(first.pk, Budget(tool_calls=1), by=OLGA, justification="it needs one")
    stage.drive()
    timers.tell_parents()
    stage.drive()
    assert (str(fresh(run).state), head(run).tool_calls) == ("failed", 1)
    act("retry", run)
    stage.at = _not_forever()
    assert stage.drive() == "parked" and len(children(run)) == 2
    whole(run, *children(run))


def _not_forever() -> Callable[[str, str], None]:
    tries = iter(range(20))
    return lambda point, tool: None if next(tries, None) is not None else pytest.fail("it tries forever")


# --- three generations ------------------------------------------------------------------------------------------------


def test_what_a_grandchild_used_reaches_the_top_though_the_middle_was_cancelled(stage: Stage, helper: Agent) -> None:
    middle = parent_of(helper, "wait")

    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End(await ctx.child(middle, {}))
        except ChildFailure as failure:
            return End(failure.state)

    run = stage.start(agent_of(node, name="top"))
    for _ in range(3):
        stage.drive()
    (between,) = children(run)
    (last,) = children(between)
    assert str(fresh(last).state) == "waiting_event" and head(last).tool_calls == 1
    lifecycle.cancel(between.pk, by=OLGA, justification="not wanted any more")
    timers.tell_parents()
    everything(stage)
    assert output(run) == "cancelled"
    assert [head(x).tool_calls for x in (run, between, last)] == [1, 1, 1], "what the last one used is everybody's"
    whole(run, between, last)


# --- many -------------------------------------------------------------------------------------------------------------


def test_paused_children_block_no_other_family(stage: Stage, helper: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wishes, "BATCH", 2)
    monkeypatch.setattr(ends, "BATCH", 2)
    crowd = stage.start(crowd_of(helper, "wait", "wait", "wait"))
    for _ in range(4):
        stage.drive()
    for child in children(crowd):
        lifecycle.pause(child.pk, by=OLGA, justification="for its own sake")
    families = []
    for _ in range(3):  # more than a page
        families.append(with_child(stage, helper, "wait"))
        stage.drive()
    for run, _ in families:
        lifecycle.pause(run.pk, by=OLGA, justification="look at it")
    with monkeypatch.context() as dies:
        follow_actions(dies, is_all=True)
        for run, _ in families:
            lifecycle.resume(run.pk, by=OLGA, justification="go on")
    wishes.align()
    assert {str(fresh(child).state) for _, child in families} == {"waiting_event"}
    assert {str(x.state) for x in children(crowd)} == {"paused"}


def test_ends_that_come_together_are_told_together(stage: Stage, helper: Agent) -> None:
    texts = [f"t{i}" for i in range(9)]
    run = stage.start(crowd_of(helper, *texts))
    assert stage.drive() == "parked"
    for _ in texts:
        assert stage.drive() == "completed"
    assert timers.tell_parents() == 9
    assert stage.drive() == "completed" and output(run) == [f"order:{text}" for text in texts]
    assert kinds(run).count("RunClaimed") == 2, "driven once for all of them"
    whole(run, *children(run))


def test_a_huge_output_is_told_whole(stage: Stage) -> None:
    async def fill(state: Notes, ctx: Context) -> End:
        return End({"text": "x" * 5_000_000 + "y" * 5_000_000})

    big = agent_of(fill, name="big")

    async def node(state: Notes, ctx: Context) -> End:
        found = await ctx.gather(ctx.child(big, {}), ctx.child(big, {}))
        return End([len(x["text"]) for x in found])

    run = stage.start(agent_of(node))
    everything(stage)
    assert output(run) == [10_000_000] * 2
    whole(run, *children(run))


# --- late, and on hold ------------------------------------------------------------------------------------------------


def test_a_child_that_takes_forever_is_overdue_and_still_waited_for(stage: Stage, helper: Agent) -> None:
    run, _ = with_child(stage, helper)
    Wait.objects.filter(run=run).update(deadline=now() - timedelta(seconds=1))
    timers.sweep()
    (wait,) = waiting(run)
    assert wait.is_overdue and str(fresh(run).state) == "waiting_event"
    everything(stage)
    assert output(run) == ["order:a"]


def test_an_end_under_a_hold_is_heard_once_the_hold_is_lifted(stage: Stage, helper: Agent) -> None:
    run, child = ended(stage, helper)
    Head.objects.filter(pk=run.pk).update(is_on_hold=True)
    timers.tell_parents()
    stage.drive()
    assert kinds(run).count("ChildEnded") == 1 and str(fresh(child).state) == "completed"
    Head.objects.filter(pk=run.pk).update(is_on_hold=False)
    if str(fresh(run).state) == "paused":
        lifecycle.resume(run.pk, by=OLGA, justification="the hold is over")
    everything(stage)
    assert output(run) == ["order:a"]


def test_a_worker_that_lacks_the_childs_version_leaves_it_to_others(stage: Stage, helper: Agent) -> None:
    run, child = with_child(stage, helper)
    assert not stage.claim(graphs=["parent@1.0.0"]), "the parent waits, the child is for somebody who knows it"
    everything(stage)
    assert output(run) == ["order:a"]
    whole(run, child)
