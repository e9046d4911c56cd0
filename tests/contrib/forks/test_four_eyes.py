"""Four eyes: anyone who took part in a run decides none of its gates, under any name, key or role."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from approvals.models import Approval
from approvals.services import decide
from durableagents import Context, End
from runs.models import Run
from runs.services import lifecycle
from runs.services.authority import own_act
from tests.contrib.forks.test_forks import AGAIN, fork
from tests.contrib.forks.test_forks import say as answer
from tests.integration.approvals.test_four_eyes import FINANCE, as_, buyer, refused, say
from tests.integration.runs.stage import Stage
from tests.integration.runs.test_children import everything
from tests.world import FIONA, OLGA, Asked, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def steerer(stage: Stage) -> User:
    return User.objects.create_user("multi")


def test_taking_part_in_the_origin_counts_in_a_child_of_its_fork(stage: Stage, tools: Toolbox, steerer: User) -> None:
    """Neither its starter nor who answered there may decide."""
    helper, starter = buyer(tools), User.objects.create_user("starter")

    async def ask(state: Notes, ctx: Context) -> str:
        state.seen.append((await ctx.ask("finance_po", title="What?", schema=Item)).name)
        return "pay"

    async def pay(state: Notes, ctx: Context) -> End:
        return End((await ctx.child(helper, Asked(text=state.seen[0]))).ref)

    agent = agent_of(ask, pay)
    started = lifecycle.start(agent.graph_id, {}, by=as_(starter, "integrator", "key"))
    run = getattr(started, "run", started)
    everything(stage)
    say(steerer)
    everything(stage)
    row = Approval.objects.get(state="open")
    decide(row.id, verdict="fail", plan_hash=row.plan_hash, justification="not so", by=FIONA)
    everything(stage)
    made = fork(run, 2, by=OLGA)
    everything(stage)
    answer(made, AGAIN)
    everything(stage)
    child = Run.objects.get(parent=made.pk)
    assert Approval.objects.get(state="open").run_id == child.pk
    for who, did in (
        (steerer, "answered a question of a run from which this run was forked"),
        (starter, "started a run from which"),
    ):
        refused(as_(who, FINANCE), did)
    assert own_act(child, FIONA.person, FIONA.name) is None, "who rejected it there has only decided"
    assert own_act(run, OLGA.person, OLGA.name) is None, "who began it again has put nothing into what it began from"
