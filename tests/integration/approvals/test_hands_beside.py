"""Who had a hand in a run that belongs with this one, had it in this one: what people put into a parent goes into its
child, what they put into a child comes back, and a fork goes on from what was put into the run that it was made of."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection

from approvals.models import Approval
from approvals.services import decide
from durableagents import Context, End
from runs.engine.agents import Agent
from runs.models import Run, Wait
from runs.services import lifecycle, questions
from runs.services.authority import own_act
from tests.integration.approvals.setup import sound
from tests.integration.approvals.test_four_eyes import as_, refused
from tests.integration.runs.stage import Stage
from tests.integration.runs.test_children import everything
from tests.integration.runs.test_forks import AGAIN, fork
from tests.integration.runs.test_forks import say as answer
from tests.world import FIONA, OLGA, Asked, Done, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
FINANCE = "approver_finance"


@pytest.fixture
def multi(stage: Stage) -> User:
    return User.objects.create_user("multi")


def buyer(tools: Toolbox, name: str = "helper") -> Agent:
    """Buys what it is told, once finance says yes."""

    async def work(state: Notes, ctx: Context) -> End:
        return End(Done(ref=(await ctx.call(tools.pay, Item(name=state.asked.text, amount=5000))).ref))

    return agent_of(work, name=name, tools=tools.all(), output=Done)


def asker(name: str = "asker") -> Agent:
    """Hands on what a person answers."""

    async def ask(state: Notes, ctx: Context) -> End:
        return End(Done(ref=(await ctx.ask("finance_po", title="What?", schema=Item)).name))

    return agent_of(ask, name=name, output=Done)


def say(user: User, thing: str = "gold") -> Run:
    wait = Wait.objects.get(kind="input", resolved_at__isnull=True)
    questions.answer(wait.run_id, wait.pk, {"name": thing, "amount": 1}, by=as_(user, FINANCE))
    return Run.objects.get(pk=wait.run_id)


def approved_by_another(stage: Stage) -> None:
    """Whoever had no hand in it may, and then it is done."""
    asked = Approval.objects.get(state="open")
    other = as_(User.objects.create_user("other"), FINANCE)
    decide(asked.id, verdict="approve", plan_hash=asked.plan_hash, justification="as quoted", by=other)
    everything(stage)
    sound(*Run.objects.all())


HANDED = "You answered a question of a run that belongs with this one at "


def test_who_answered_in_the_parent_does_not_decide_in_its_child(stage: Stage, tools: Toolbox, multi: User) -> None:
    helper = buyer(tools)

    async def node(state: Notes, ctx: Context) -> End:
        item = await ctx.ask("finance_po", title="What?", schema=Item)
        return End((await ctx.child(helper, Asked(text=item.name))).ref)

    run = stage.start(agent_of(node))
    everything(stage)
    say(multi)
    everything(stage)
    assert Approval.objects.get(state="open").run_id != run.pk
    refused(as_(multi, FINANCE), HANDED)
    approved_by_another(stage)


def test_who_answered_in_a_child_does_not_decide_in_its_parent_or_beside_it(
    stage: Stage, tools: Toolbox, multi: User
) -> None:
    first, second = asker(), buyer(tools)

    async def node(state: Notes, ctx: Context) -> End:
        thing = (await ctx.child(first, Asked(text="a"))).ref
        bought = (await ctx.child(second, Asked(text=thing))).ref
        return End([bought, (await ctx.call(tools.pay, Item(name=thing, amount=5000))).ref])

    run = stage.start(agent_of(node, tools=tools.all()))
    everything(stage)
    assert say(multi).parent == run.pk
    for where in ("child", "parent"):
        everything(stage)
        asked = Approval.objects.get(state="open")
        assert (asked.run_id == run.pk) is (where == "parent")
        refused(as_(multi, FINANCE), HANDED)
        other = as_(User.objects.create_user(where), FINANCE)
        decide(asked.id, verdict="approve", plan_hash=asked.plan_hash, justification="as quoted", by=other)
    everything(stage)
    assert str(Run.objects.get(pk=run.pk).state) == "completed"
    sound(*Run.objects.all())


def test_who_had_a_hand_in_the_origin_does_not_decide_in_a_child_of_its_fork(
    stage: Stage, tools: Toolbox, multi: User
) -> None:
    """Neither who started it, nor who answered there."""
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
    say(multi)
    everything(stage)
    asked = Approval.objects.get(state="open")
    decide(asked.id, verdict="fail", plan_hash=asked.plan_hash, justification="not so", by=FIONA)
    everything(stage)
    made = fork(run, 2, by=OLGA)
    everything(stage)
    answer(made, AGAIN)
    everything(stage)
    child = Run.objects.get(parent=made.pk)
    assert Approval.objects.get(state="open").run_id == child.pk
    for who, did in (
        (multi, "answered a question of a run of which this work is a fork"),
        (starter, "started a run of which"),
    ):
        refused(as_(who, FINANCE), did)
    assert own_act(child, FIONA.person, FIONA.name) is None, "who rejected it there has only decided"
    assert own_act(run, OLGA.person, OLGA.name) is None, "who began it again has put nothing into what it began from"


def test_a_circle_that_other_hands_made_ends(stage: Stage, tools: Toolbox, multi: User) -> None:
    runs = [stage.start(asker(f"one{n}")) for n in range(3)]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for n, run in enumerate(runs):
            cursor.execute(
                "UPDATE runs_run SET parent = %s, forked_from = %s, fork_how = 'fork' WHERE id = %s",
                [runs[n - 1].pk, runs[n - 2].pk, run.pk],
            )
        cursor.execute("SET LOCAL session_replication_role = origin")
    assert own_act(Run.objects.get(pk=runs[0].pk), multi.pk, multi.username) is None
