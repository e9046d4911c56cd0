"""Child runs on the real database: one child per step, one recorded end, one sum of usage."""

from __future__ import annotations

from uuid import UUID

import pytest

from durableagents import Agent, Budget, ChildFailure, Context, End, Failure
from ledger import events as e
from ledger.actors import Actor
from runs.models import Run
from runs.services import lifecycle
from runs.services.families import ends, wishes
from runs.workers import timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, at_once, events, fresh, head, kinds, output, overrides
from tests.world import OLGA, SHOP, Asked, Done, Item, Notes, Outside, Toolbox, agent_of


@pytest.fixture
def helper(tools: Toolbox) -> Agent:
    """Return an agent that orders its input; *fail* fails, *wait* waits for a signal."""

    async def work(state: Notes, ctx: Context) -> End:
        done = await ctx.call(tools.order, Item(name=state.asked.text))
        if state.asked.text == "fail":
            raise Failure("it was to fail", code="no_luck")
        if state.asked.text == "wait":
            await ctx.signal("go")
        return End(Done(ref=done.ref))

    return agent_of(work, name="helper", tools=tools.all(), output=Done)


def parent_of(helper: Agent, *texts: str, budget: Budget | None = None) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        items = []
        for text in texts:
            try:
                items.append((await ctx.child(helper, Asked(text=text), budget=budget)).ref)
            except ChildFailure as failure:
                items.append(f"{failure.state}: {failure.code}")
        return End(items)

    return agent_of(node, name="parent")


def crowd_of(helper: Agent, *texts: str) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        branches = (ctx.child(helper, Asked(text=text)) for text in texts)
        found = await ctx.gather(*branches, return_exceptions=True)
        return End([x.ref if isinstance(x, Done) else f"{x.state}: {x.code}" for x in found])

    return agent_of(node, name="crowd")


def children(run: Run) -> list[Run]:
    return list(Run.objects.filter(parent=run.pk).order_by("created_at", "id"))


def everything(stage: Stage, most: int = 60) -> None:
    for _ in range(most):
        if stage.drive() == "idle" and not timers.tell_parents():
            return
    raise AssertionError("it goes round in circles")


def whole(*runs: Run) -> None:
    for run in runs:
        check_against_journal(run)


def test_child_has_its_own_journal_and_tells_its_parent(stage: Stage, helper: Agent, outside: Outside) -> None:
    run = stage.start(parent_of(helper, "a", "b"))
    assert stage.drive() == "parked" and str(fresh(run).state) == "waiting_event"
    (child,) = children(run)
    assert (child.agent, child.depth, child.created_by, child.creator) == ("helper", 1, f"run:{run.id}", run.creator)
    assert kinds(child)[:2] == ["RunCreated", "ChildOf"] and events(child, e.ChildOf)[0].parent == str(run.id)
    assert child.trace_id == run.trace_id
    everything(stage)
    assert output(run) == ["order:a", "order:b"] and len(children(run)) == 2
    assert [r.body for r in outside.requests] == ['{"amount": 1, "name": "a"}', '{"amount": 1, "name": "b"}']
    assert head(run).tool_calls == 2 and head(run).steps == 2
    assert all(child.is_told for child in children(run))
    whole(run, *children(run))


def test_an_end_is_told_once_however_many_tell_it(stage: Stage, helper: Agent) -> None:
    run = stage.start(parent_of(helper, "a"))
    stage.drive(), stage.drive()
    (child,) = children(run)
    assert str(fresh(child).state) == "completed"
    found = at_once(*[lambda: ends.tell_parent(child.pk)] * 6)
    assert sorted(found) == [False] * 5 + [True]
    assert len(events(run, e.ChildEnded)) == 1 and not timers.tell_parents()
    everything(stage)
    assert output(run) == ["order:a"]
    whole(run, child)


@pytest.mark.parametrize("point", ["CP1", "CP8"])
def test_a_parent_that_dies_starts_nobody_twice(stage: Stage, helper: Agent, outside: Outside, point: str) -> None:
    stage.kill_at = [(point, "")]
    run = stage.start(parent_of(helper, "a"))
    stage.settle(run)
    everything(stage)
    assert output(run) == ["order:a"] and len(children(run)) == 1 and len(outside.executed()) == 1
    whole(run, *children(run))


# --- actions on the parent --------------------------------------------------------------------------------------------


def test_a_cancel_goes_down_the_tree(stage: Stage, helper: Agent) -> None:
    run = stage.start(parent_of(helper, "wait"))
    stage.drive(), stage.drive()
    (child,) = children(run)
    assert str(fresh(child).state) == "waiting_event"
    lifecycle.cancel(run.pk, by=OLGA, justification="not wanted any more")
    assert (str(fresh(run).state), str(fresh(child).state)) == ("cancelled", "cancelled")
    (end,) = events(child, e.RunCancelled)
    assert end.by == "system:family" and str(run.pk) in end.payload["justification"] and not overrides(child)
    timers.tell_parents()
    assert events(run, e.RunCancelled)[0].in_flight == ["0.1/1"]
    assert events(run, e.ChildEnded)[0].state == "cancelled" and head(run).tool_calls == 1, "it is debited all the same"
    whole(run, child)


def test_a_pause_goes_down_and_is_taken_back_with_the_parents(stage: Stage, helper: Agent) -> None:
    run = stage.start(crowd_of(helper, "wait", "wait"))
    stage.drive(), stage.drive(), stage.drive()
    one, other = children(run)
    lifecycle.pause(one.pk, by=OLGA, justification="this one for its own sake")
    lifecycle.pause(run.pk, by=OLGA, justification="look at it")
    assert {str(fresh(x).state) for x in (run, one, other)} == {"paused"}
    lifecycle.resume(run.pk, by=OLGA, justification="go on")
    assert str(fresh(one).state) == "paused" and str(fresh(other).state) == "waiting_event"
    assert wishes.align() == 0
    whole(run, one, other)


def test_an_end_under_a_pause_is_kept_for_later(stage: Stage, helper: Agent) -> None:
    run = stage.start(parent_of(helper, "a"))
    stage.drive()
    (child,) = children(run)
    stage.drive()
    lifecycle.pause(run.pk, by=OLGA, justification="look at it")
    timers.tell_parents()
    assert str(fresh(run).state) == "paused" and stage.drive() == "idle"
    lifecycle.resume(run.pk, by=OLGA, justification="go on")
    everything(stage)
    assert output(run) == ["order:a"]
    whole(run, child)


def test_who_started_the_parent_may_stop_its_child(stage: Stage, helper: Agent) -> None:
    shop = Actor("key", "shop", role="integrator", auth="api_key", person=7)
    run = lifecycle.start(parent_of(helper, "wait").graph_id, {}, by=shop)
    stage.drive(), stage.drive()
    (child,) = children(run)
    lifecycle.cancel(child.pk, by=shop, justification="mine")
    everything(stage)
    assert output(run) == ["cancelled: "]
    whole(run, child)


# --- a retry ----------------------------------------------------------------------------------------------------------


def test_a_child_whose_end_was_told_is_not_retried_but_its_parent_is(stage: Stage, helper: Agent) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.child(helper, Asked(text="fail"))).ref)

    run = stage.start(agent_of(node, name="strict"))
    everything(stage)
    assert str(fresh(run).state) == "failed" and fresh(run).error_code == "no_luck"
    (first,) = children(run)
    with pytest.raises(Exception, match="Retry the parent"):
        lifecycle.retry(first.pk, by=OLGA, justification="again")
    act("retry", run)
    assert stage.drive() == "parked"
    second = next(x for x in children(run) if x.pk != first.pk)
    assert (second.parent_slot, second.parent_attempt) == (first.parent_slot, 1)
    everything(stage)
    assert str(fresh(run).state) == "failed"
    whole(run, first, second)


def test_a_child_that_is_retried_before_anybody_told_goes_on(stage: Stage, helper: Agent) -> None:
    run = stage.start(parent_of(helper, "fail"))
    stage.drive(), stage.drive()
    (child,) = children(run)
    assert str(fresh(child).state) == "failed"
    act("retry", child)
    assert not timers.tell_parents() and not events(run, e.ChildEnded)
    everything(stage)
    assert output(run) == ["failed: no_luck"] and len(events(run, e.ChildEnded)) == 1
    whole(run, child)


# --- budgets ----------------------------------------------------------------------------------------------------------


def test_what_children_use_is_their_parents(stage: Stage, helper: Agent) -> None:
    run = lifecycle.start(
        parent_of(helper, "a", "b", budget=Budget(tool_calls=1)).graph_id, {}, by=SHOP, budget=Budget(tool_calls=2)
    )
    everything(stage)
    assert output(run) == ["order:a", "order:b"] and head(run).tool_calls == 2
    assert [head(child).cap_tool_calls for child in children(run)] == [1, 1]
    whole(run, *children(run))


def test_a_child_beyond_what_is_left_waits_for_more(stage: Stage, helper: Agent) -> None:
    run = lifecycle.start(
        parent_of(helper, "a", "b", budget=Budget(tool_calls=1)).graph_id, {}, by=SHOP, budget=Budget(tool_calls=1)
    )
    everything(stage)
    assert str(fresh(run).state) == "paused" and len(children(run)) == 1
    whole(run, *children(run))


def test_the_bottom_of_the_tree_is_where_it_says(stage: Stage) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.child("digger", {}))["depth"])
        except Exception as bottom:
            return End({"depth": str(bottom)})

    run = stage.start(agent_of(node, name="digger"))
    everything(stage, most=100)
    depths = sorted(Run.objects.filter(agent="digger").values_list("depth", flat=True))
    assert depths == list(range(9))
    assert str(fresh(run).state) == "completed"


def test_damage_to_one_family_is_nobody_elses(stage: Stage, helper: Agent) -> None:
    from tests.integration.runs.stage import Head

    broken, sound = (stage.start(parent_of(helper, "a")) for _ in range(2))
    for _ in range(4):
        stage.drive()
    Head.objects.filter(pk=broken.pk).delete()
    assert timers.tell_parents() == 1
    everything(stage)
    assert output(sound) == ["order:a"]


def test_of_a_child_whose_parent_was_forgotten_nobody_is_told(stage: Stage) -> None:
    assert not ends.tell_parent(UUID(int=0))
