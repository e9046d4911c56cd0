"""Who started a run, and its tags, count for its policies as long as its work goes on: in runs that go on from it, and
below it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import ProgrammingError

from approvals.policies import trying
from approvals.policies.bodies import TryBody
from approvals.rules.judging import Rule
from approvals.rules.meaning import typed
from durableagents import Agent, Context, End, Handoff, PolicyDenied, Renew
from runs.engine.policy.judgement import STRICTEST, Asking
from runs.models import Run
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.approvals.setup import boss
from tests.integration.approvals.test_policies import put
from tests.integration.approvals.test_rule_changes import as_the_application
from tests.integration.runs.stage import Stage, problems
from tests.integration.runs.stories import as_superuser
from tests.integration.runs.test_children import everything
from tests.world import OLGA, SHOP, Asked, Done, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


async def ordered(ctx: Context, tools: Toolbox) -> End:
    try:
        return End(await ctx.call(tools.order, Item(name="po", amount=5)))
    except PolicyDenied as no:
        return End(Done(ref=f"denied by {no.policy}"))


def renewing(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> Any:
        return await ordered(ctx, tools) if state.seen else Renew(Notes(seen=["renewed"]))

    return agent_of(node, tools=tools.all(), output=Done)


def handing(tools: Toolbox) -> Agent:
    async def work(state: Notes, ctx: Context) -> Any:
        return await ordered(ctx, tools)

    agent_of(work, name="desk", tools=tools.all(), output=Done)

    async def node(state: Notes, ctx: Context) -> Any:
        return Handoff("desk", Asked(text="over to you"))

    return agent_of(node, tools=tools.all(), output=Done)


def parenting(tools: Toolbox) -> Agent:
    """One whose child renews: two links up."""
    helper = renewing(tools)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.child(helper, Asked(text="a"))).ref)

    return agent_of(node, name="parent")


@pytest.mark.parametrize("made", [renewing, handing, parenting])
def test_a_policy_on_who_started_a_run_counts_in_all_that_comes_of_it(
    stage: Stage, tools: Toolbox, outside: Outside, made: Callable[[Toolbox], Agent]
) -> None:
    agent = made(tools)
    put(boss(), effect="deny", condition="requester = key:shop")
    lifecycle.start(agent.graph_id, {}, by=SHOP)
    everything(stage)
    assert outside.requests == []
    lifecycle.start(agent.graph_id, {}, by=OLGA)
    everything(stage)
    assert len(outside.executed()) == 1, "of another one's runs nothing is refused"
    for run in Run.objects.all():
        assert problems(run) == []


def test_where_it_cant_be_told_who_started_a_run_a_rule_that_restricts_counts(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    """A row that leads elsewhere than the journal."""
    agent = renewing(tools)
    put(boss(), effect="deny", condition="requester = key:shop")
    other = lifecycle.start(agent.graph_id, {}, by=OLGA)
    everything(stage)
    assert len(outside.executed()) == 1
    lifecycle.start(agent.graph_id, {}, by=SHOP)
    stage.drive()
    heir = Run.objects.filter(first__isnull=False).latest("created_at")
    as_superuser("UPDATE runs_run SET first = %s WHERE id = %s", other.pk, heir.pk)
    everything(stage)
    assert len(outside.executed()) == 1


@each_case("condition", ["requester = key:shop", "requester is set and requester != user:olga", "not requester is set"])
def test_whoever_cant_be_told_is_somebody(condition: str) -> None:
    """That nobody can say who it was is no word for *nobody*."""
    asking = Asking(
        run_id="1",
        agent="a",
        version="1",
        tool="order",
        replay_class="",
        risk="",
        arguments={},
        source="",
        requester=None,
        cost_micro=None,
    )
    for effect in STRICTEST:
        rule = Rule("orders", 1, "", "", typed(condition, []), effect, "", timedelta(days=1), "")
        assert rule.matches(asking) is (effect != "allow")


@pytest.mark.parametrize("made", [renewing, handing, parenting])
def test_a_rule_on_who_started_a_run_is_tried_on_all_that_came_of_it(
    stage: Stage, tools: Toolbox, made: Callable[[Toolbox], Agent]
) -> None:
    agent = made(tools)
    for by in (SHOP, SHOP, OLGA):
        lifecycle.start(agent.graph_id, {}, by=by)
        everything(stage)
    found = trying.tried(TryBody(effect="deny", tool="order", condition="requester = key:shop"))
    assert (found.calls, found.denied.calls, found.unsure) == (3, 2, 0)


@pytest.mark.parametrize("made", [renewing, handing, parenting])
def test_a_policy_on_a_tag_counts_in_all_that_comes_of_the_run(
    stage: Stage, tools: Toolbox, outside: Outside, made: Callable[[Toolbox], Agent]
) -> None:
    agent = made(tools)
    put(boss(), effect="deny", condition="tags has vip")
    lifecycle.start(agent.graph_id, {}, by=SHOP, tags=["vip"])
    everything(stage)
    assert outside.requests == []
    lifecycle.start(agent.graph_id, {}, by=SHOP, tags=["other"])
    everything(stage)
    assert len(outside.executed()) == 1, "of a run without the tag nothing is refused"
    for run in Run.objects.all():
        assert problems(run) == []


def test_whoever_writes_a_runs_tags_anew_leads_no_call_past_a_policy(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    agent = renewing(tools)
    put(boss(), effect="deny", condition="tags has vip")
    run = lifecycle.start(agent.graph_id, {}, by=SHOP, tags=["vip"])
    as_the_application(f"UPDATE runs_run SET tags = '[]' WHERE id = '{run.pk}'")
    with pytest.raises(ProgrammingError, match="permission denied"):
        as_the_application(f"DELETE FROM runs_runtag WHERE run_id = '{run.pk}'")
    everything(stage)
    assert outside.requests == []


@pytest.mark.parametrize("made", [renewing, handing, parenting])
def test_a_rule_on_a_tag_is_tried_on_all_that_came_of_the_run(
    stage: Stage, tools: Toolbox, made: Callable[[Toolbox], Agent]
) -> None:
    agent = made(tools)
    for tags in (["vip"], ["vip", "eu"], ["eu"], []):
        lifecycle.start(agent.graph_id, {}, by=SHOP, tags=tags)
        everything(stage)
    found = trying.tried(TryBody(effect="deny", tool="order", condition="tags has vip"))
    assert (found.calls, found.denied.calls, found.unsure) == (4, 2, 0)
