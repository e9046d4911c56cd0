"""Four eyes: anyone who took part in a run decides none of its gates, under any name, key or role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from approvals.models import Approval, Decision
from approvals.services import decide
from durableagents import Context, End, Rejected
from ledger.actors import Actor
from ledger.append import locked_head, override
from ledger.errors import Forbidden
from ledger.models import ActRecord, Head, OverrideRecord
from runs.engine.agents import Agent
from runs.models import Run, Wait
from runs.services import lifecycle, questions, reconciling, signals
from runs.services.authority import own_act
from tests.contrib.forks.test_forks import AGAIN, fork
from tests.contrib.forks.test_forks import say as answer
from tests.integration.approvals.setup import buying, sound
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Stage, dump
from tests.integration.runs.test_children import everything
from tests.tampering import tamper, without_triggers
from tests.world import FIONA, OLGA, SHOP, Asked, Done, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def asking(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        item = await ctx.ask("finance_po", title="What?", schema=Item)
        return End((await ctx.call(tools.pay, Item(name=item.name, amount=5000))).ref)

    return agent_of(node, tools=tools.all())


@pytest.fixture
def multi() -> Iterator[User]:
    yield User.objects.create_user("multi")
    User.objects.all().delete()


def as_(user: User, role: str, kind: str = "user") -> Actor:
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return Actor(
        kind,
        user.username,
        role=role,
        auth="session" if kind == "user" else "api_key",
        address="192.0.2.9",
        person=user.pk,
    )


def approve(by: Actor) -> Approval:
    row = Approval.objects.get(state="open")
    return decide(row.id, verdict="approve", plan_hash=row.plan_hash, justification="as quoted", by=by)


def refused(by: Actor, words: str) -> None:
    before = dump()
    with pytest.raises(Forbidden, match=words):
        approve(by)
    assert dump() == before


@pytest.mark.parametrize("kind", ["user", "key"])
def test_renaming_oneself_does_not_make_one_somebody_else(stage: Stage, tools: Toolbox, multi: User, kind: str) -> None:
    lifecycle.start(buying(tools).graph_id, {}, by=as_(multi, "integrator", "key"))
    stage.drive()
    refused(as_(multi, "approver_finance", kind), "You started this run, so someone else has to decide")
    multi.username = "Multi"
    multi.save()
    refused(as_(multi, "approver_finance", kind), "You started this run")
    approve(FIONA)


def test_someone_who_takes_the_name_later_is_not_the_starter(stage: Stage, tools: Toolbox, multi: User) -> None:
    lifecycle.start(buying(tools).graph_id, {}, by=as_(multi, "integrator"))
    stage.drive()
    multi.username = "gone"
    multi.save()
    approve(as_(User.objects.create_user("multi"), "approver_finance"))
    assert Decision.objects.get().by == "user:multi"


def paused(run: Run, by: Actor) -> None:
    lifecycle.pause(run.pk, by=replace(by, role="operator"), justification="let me see")


def resumed(run: Run, by: Actor) -> None:
    paused(run, OLGA)
    lifecycle.resume(run.pk, by=replace(by, role="approver_finance"), justification="go on")


def signalled(run: Run, by: Actor) -> None:
    signals.signal(run.pk, "price", 7, by=replace(by, role="integrator", kind="key"))


def retried(run: Run, by: Actor) -> None:
    """Record a retry without doing one."""
    with transaction.atomic():
        head = locked_head(run.pk)
        override(head, "retry", by=replace(by, role="operator"), justification="again", before={}, after={})


@pytest.mark.parametrize("act", [paused, resumed])
def test_pause_and_resume_do_not_bar_from_deciding(
    stage: Stage, tools: Toolbox, multi: User, act: Callable[[Run, Actor], None]
) -> None:
    run = stage.start(buying(tools))
    stage.drive()
    act(run, as_(multi, ""))
    assert approve(as_(multi, "approver_finance")).state == "approved"


@pytest.mark.parametrize(
    ("act", "words"), [(retried, "You retried this run at"), (signalled, "You sent this run a signal at")]
)
def test_steering_is_a_hand(
    stage: Stage, tools: Toolbox, multi: User, act: Callable[[Run, Actor], None], words: str
) -> None:
    run = stage.start(buying(tools))
    stage.drive()
    act(run, as_(multi, ""))
    multi.username = "another"
    multi.save()
    refused(as_(multi, "approver_finance"), words)
    refused(as_(multi, "approver_finance", "key"), words)
    approve(FIONA)


def test_someone_who_answered_a_question_does_not_decide_what_came_of_it(
    stage: Stage, tools: Toolbox, multi: User
) -> None:
    run = stage.start(asking(tools))
    stage.drive()
    wait = Wait.objects.get(kind="input")
    questions.answer(run.pk, wait.pk, {"name": "gold", "amount": 1}, by=as_(multi, "approver_finance"))
    assert stage.drive() == "parked"
    refused(as_(multi, "approver_finance"), "You answered a question of this run at")
    approve(FIONA)


def test_someone_who_retried_or_settled_does_not_decide(stage: Stage, tools: Toolbox, multi: User) -> None:
    run = Situations(stage, tools).make("unknown")
    reconciling.reconcile(
        run.pk, verdict="happened", receipt={"ref": "m-1"}, justification="looked it up", by=as_(multi, "operator")
    )
    (record,) = OverrideRecord.objects.filter(run_id=run.pk)
    assert (record.person, record.action) == (multi.pk, "reconcile")
    multi.username = "another"
    multi.save()
    assert "settled a call of this run" in str(own_act(Run.objects.get(pk=run.pk), multi.pk, "another"))


def test_who_took_part_in_it_is_judged_once_and_under_the_lock(stage: Stage, tools: Toolbox) -> None:
    """Before the lock was won they may have steered the run, so an earlier check proves nothing."""
    stage.start(buying(tools))
    stage.drive()
    with CaptureQueriesContext(connection) as queries:
        approve(FIONA)
    statements = [query["sql"] for query in queries]
    (judged,) = [i for i, sql in enumerate(statements) if "former AS MATERIALIZED" in sql]
    (locked,) = [i for i, sql in enumerate(statements) if "FOR UPDATE" in sql and "approvals_approval" in sql]
    facts = [i for i, sql in enumerate(statements) if "json_build_object('now'" in sql]
    assert facts[0] < locked < facts[1] < judged and len(facts) == 2


def test_rejecting_a_revision_is_deciding_not_meddling(stage: Stage, tools: Toolbox, multi: User) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(tools.pay, Item(name="po", amount=9000))).ref)
        except Rejected:
            return End((await ctx.call(tools.pay, Item(name="po", amount=5000))).ref)

    stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    row = Approval.objects.get()
    decide(
        row.id,
        verdict="reject",
        plan_hash=row.plan_hash,
        justification="too much",
        by=as_(multi, "approver_finance"),
    )
    stage.drive()
    approve(as_(multi, "approver_finance"))


def test_what_another_person_did_in_the_run_is_theirs(stage: Stage, tools: Toolbox, multi: User) -> None:
    run = stage.start(buying(tools))
    stage.drive()
    lifecycle.pause(run.pk, by=OLGA, justification="let me see")
    lifecycle.resume(run.pk, by=OLGA, justification="seen")
    approve(as_(multi, "approver_finance"))


def without_accounts(table: str, column: str) -> None:
    """Make the rows older than the account column."""
    tamper(f"UPDATE {table} SET {column} = NULL")


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize(
    ("table", "column"), [("runs_run", "creator"), ("ledger_overriderecord", "person"), ("ledger_actrecord", "person")]
)
def test_old_rows_count_by_every_name_that_the_account_has_had(
    stage: Stage, tools: Toolbox, multi: User, renamed: bool, table: str, column: str
) -> None:
    by = as_(multi, "integrator", "key") if table == "runs_run" else SHOP
    run = lifecycle.start(buying(tools).graph_id, {}, by=by)
    stage.drive()
    if table == "ledger_overriderecord":
        retried(run, as_(multi, ""))
    if table == "ledger_actrecord":
        signalled(run, as_(multi, ""))
    without_accounts(table, column)
    if renamed:
        multi.username = "another"
        multi.save()
    refused(as_(multi, "approver_finance"), "someone else has to decide")
    approve(FIONA)


def test_an_old_run_gives_nobody_the_right_to_stop_it_by_name(stage: Stage, tools: Toolbox, multi: User) -> None:
    run = lifecycle.start(buying(tools).graph_id, {}, by=as_(multi, "integrator"))
    without_accounts("runs_run", "creator")
    with pytest.raises(Forbidden):
        lifecycle.cancel(run.pk, by=as_(multi, "integrator"), justification="mine")


def test_a_decision_tells_the_exact_state_it_was_made_on(stage: Stage, tools: Toolbox, multi: User) -> None:
    run = stage.start(buying(tools))
    stage.drive()
    head = Head.objects.get(pk=run.pk)
    approve(as_(multi, "approver_finance"))
    decision: Any = Decision.objects.get()
    assert (decision.seq, bytes(decision.chain), decision.person) == (head.seq, bytes(head.chain), multi.pk)
    assert (decision.before["state"], decision.after["state"]) == ("waiting_human", "running")
    assert (
        Approval.objects.get().requester is None
        and ActRecord.objects.filter(run_id=run.pk, action="start").count() == 1
    )


FINANCE = "approver_finance"


@pytest.fixture
def steerer(stage: Stage) -> User:
    return User.objects.create_user("multi")


def buyer(tools: Toolbox, name: str = "helper") -> Agent:
    async def work(state: Notes, ctx: Context) -> End:
        return End(Done(ref=(await ctx.call(tools.pay, Item(name=state.asked.text, amount=5000))).ref))

    return agent_of(work, name=name, tools=tools.all(), output=Done)


def asker(name: str = "asker") -> Agent:
    async def ask(state: Notes, ctx: Context) -> End:
        return End(Done(ref=(await ctx.ask("finance_po", title="What?", schema=Item)).name))

    return agent_of(ask, name=name, output=Done)


def say(user: User, thing: str = "gold") -> Run:
    wait = Wait.objects.get(kind="input", resolved_at__isnull=True)
    questions.answer(wait.run_id, wait.pk, {"name": thing, "amount": 1}, by=as_(user, FINANCE))
    return Run.objects.get(pk=wait.run_id)


def approved_by_another(stage: Stage) -> None:
    row = Approval.objects.get(state="open")
    other = as_(User.objects.create_user("other"), FINANCE)
    decide(row.id, verdict="approve", plan_hash=row.plan_hash, justification="as quoted", by=other)
    everything(stage)
    sound(*Run.objects.all())


HANDED = "You answered a question of a run related to this one at "


def test_who_answered_in_the_parent_does_not_decide_in_its_child(stage: Stage, tools: Toolbox, steerer: User) -> None:
    helper = buyer(tools)

    async def node(state: Notes, ctx: Context) -> End:
        item = await ctx.ask("finance_po", title="What?", schema=Item)
        return End((await ctx.child(helper, Asked(text=item.name))).ref)

    run = stage.start(agent_of(node))
    everything(stage)
    say(steerer)
    everything(stage)
    assert Approval.objects.get(state="open").run_id != run.pk
    refused(as_(steerer, FINANCE), HANDED)
    approved_by_another(stage)


def test_an_answer_in_a_child_takes_part_in_parent_and_siblings(stage: Stage, tools: Toolbox, steerer: User) -> None:
    first, second = asker(), buyer(tools)

    async def node(state: Notes, ctx: Context) -> End:
        thing = (await ctx.child(first, Asked(text="a"))).ref
        bought = (await ctx.child(second, Asked(text=thing))).ref
        return End([bought, (await ctx.call(tools.pay, Item(name=thing, amount=5000))).ref])

    run = stage.start(agent_of(node, tools=tools.all()))
    everything(stage)
    assert say(steerer).parent == run.pk
    for where in ("child", "parent"):
        everything(stage)
        row = Approval.objects.get(state="open")
        assert (row.run_id == run.pk) is (where == "parent")
        refused(as_(steerer, FINANCE), HANDED)
        other = as_(User.objects.create_user(where), FINANCE)
        decide(row.id, verdict="approve", plan_hash=row.plan_hash, justification="as quoted", by=other)
    everything(stage)
    assert str(Run.objects.get(pk=run.pk).state) == "completed"
    sound(*Run.objects.all())


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


def test_a_circle_that_other_hands_made_ends(stage: Stage, tools: Toolbox, steerer: User) -> None:
    runs = [stage.start(asker(f"one{n}")) for n in range(3)]
    with without_triggers() as cursor:
        for n, run in enumerate(runs):
            cursor.execute(
                "UPDATE runs_run SET parent = %s, forked_from = %s, fork_how = 'fork' WHERE id = %s",
                [runs[n - 1].pk, runs[n - 2].pk, run.pk],
            )
    assert own_act(Run.objects.get(pk=runs[0].pk), steerer.pk, steerer.username) is None
