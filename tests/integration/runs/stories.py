"""Runs that leave rows of every kind, and ways to change each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import connection

from approvals.models import Approval, Escalation, Queue
from approvals.services import decide
from durableagents import BusinessFailure, Context, End, Flag, Keyword, Keywords, Number, TransportError
from durableagents.contrib.accounts import passkeys, webauthn
from durableagents.contrib.calendars.models import Timing
from durableagents.contrib.casework import delegations, inquiries
from durableagents.contrib.step_up.models import Assertion, terms_of_yes
from ledger.actors import Actor
from runs.engine.agents import Agent
from runs.journal.asked.queues import QUEUES
from runs.models import Run, Wait
from runs.services import callbacks, lifecycle, questions, signals
from runs.services.messages import sending
from runs.workers import failover, timers
from tests.contrib.accounts.authenticator import Device
from tests.contrib.standing_approvals.granting import allowed, given, swept
from tests.integration.approvals.setup import boss, somebody
from tests.integration.runs.stage import Stage, calling, now
from tests.world import OLGA, Item, Notes, Toolbox, agent_of


def everything(tools: Toolbox) -> Agent:
    async def first(state: Notes, ctx: Context) -> str:
        await ctx.uuid()
        await ctx.set_attributes(customer="Nordlicht", tags=["a", "b"], score=3, urgent=True)
        await ctx.call(tools.look, Item(name="catalogue"))
        await ctx.call(tools.order, Item(name="desk"))
        state.seen.append((await ctx.call(tools.pay, Item(name="po", amount=5000))).ref)
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve("legal", title="letter", body=Item(name="letter"), tool=tools.mail)
        await ctx.call(tools.mail, Item(name="letter"), grant=grant)
        await ctx.call(tools.ask, Item(name="form"))
        await ctx.signal("go")
        await ctx.set_attributes(customer=None, score="2.5")
        await ctx.sleep(3600)
        return End("well")

    found_by = {"customer": Keyword(), "tags": Keywords(), "score": Number(), "urgent": Flag()}
    agent = agent_of(first, second, tools=tools.all(), attributes=found_by)

    @agent.message(takes=Item)
    def note(state: Notes, request: Item) -> None:
        state.seen.append(request.name)

    return agent


def through(stage: Stage, tools: Toolbox, agent: Agent) -> Run:
    """Return a run decided, paused, reconciled, answered, signalled, taken from a dead worker, and finally asleep."""
    tools.outside.trouble("mail", TransportError("cut"), when="after")
    run = stage.start(agent)
    signals.signal(run.id, "go", {"n": 1}, by=OLGA)
    sending.send(run.id, "note", {"name": "before it begins"}, by=OLGA)
    dead = stage.hire(is_dead=True)
    assert len(stage.claim(dead)) == 1 and failover.worker_died(dead.id, "gone") == 1
    assert stage.drive() == "parked"
    lifecycle.pause(run.id, by=OLGA, justification="hold on")
    lifecycle.resume(run.id, by=OLGA, justification="go on")
    stage.decide(run, why="as quoted")
    assert stage.drive() == "parked"
    stage.decide(run, why="reads well")
    assert stage.drive() == "parked"
    stage.reconcile(run, "happened", {"ref": "mail:letter", "amount": 1})
    assert stage.drive() == "parked"
    (url,) = tools.outside.urls.values()
    tools.outside.urls.clear()
    callbacks.receive_callback(url.rpartition("/")[2], {"ref": "ask:form", "amount": 1})
    assert stage.drive() == "parked"
    return run


def failed(stage: Stage, tools: Toolbox) -> Run:
    async def fail(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve("finance_po", title="x")
        return End(grant.by)

    run = stage.start(agent_of(fail))
    stage.drive()
    stage.decide(run, "reject", why="too dear")
    assert stage.drive() == "failed"
    return run


def answered(stage: Stage, tools: Toolbox) -> Run:
    """Return a run of an account, refused once, retried under the same approval, with a question to people."""

    async def ask(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.pay, Item(name="po", amount=9000))
        return End((await ctx.ask("finance_po", title="What?", schema=Item)).name)

    tools.outside.trouble("pay", BusinessFailure("closed", code="closed"))
    by = Actor("user", "multi", role="integrator", auth="session", person=4711)
    run = lifecycle.start(agent_of(ask, tools=tools.all()).graph_id, {"text": "x"}, by=by)
    stage.drive()
    stage.decide(run)
    assert stage.drive() == "failed"
    lifecycle.retry(run.id, by=OLGA, justification="open again")
    assert stage.drive() == "parked"
    questions.answer(
        run.id,
        Wait.objects.get(run=run, kind="input").id,
        {"name": "gold", "amount": 1},
        by=OLGA,
        justification="as told",
    )
    assert stage.drive() == "completed"
    return run


def cancelled(stage: Stage, tools: Toolbox) -> Run:
    run = stage.start(calling(tools, "pay", "po", 9000))
    stage.drive()
    return lifecycle.cancel(run.id, by=OLGA, justification="not needed")


@contextmanager
def rows_refused(what: str, which: str, code: str = "P0001") -> Iterator[None]:
    """Let the server refuse a change ("INSERT ON ledger_event") where `which` holds of NEW, with an SQLSTATE `code`."""
    table = what.split(" ON ")[1]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF {which} THEN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$"""
        )
        cursor.execute(f"CREATE TRIGGER refuse BEFORE {what} FOR EACH ROW EXECUTE FUNCTION refuse()")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER refuse ON {table}")
            cursor.execute("DROP FUNCTION refuse")


def escalated(stage: Stage, tools: Toolbox) -> Run:
    timing = Timing(
        queue=Queue.objects.get(name="finance_po"),
        version=1,
        on_timeout="escalate",
        steps=[["legal", 60]],
        remind=[50],
        set_by="user:boss",
        set_at=now(),
    )
    timing.seal()
    timing.save()
    QUEUES.forget()
    assert tools.pay.gate is not None
    soon = replace(tools.pay, gate=replace(tools.pay.gate, within=timedelta(milliseconds=1)))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(soon, Item(name="po", amount=5000))).ref)

    run = stage.start(agent_of(node, tools=[soon]))
    assert stage.drive() == "parked"
    timers.sweep()
    assert [row.queue for row in Escalation.objects.filter(run_id=run.id)] == ["legal"]
    talked_about(run)
    return run


def allowed_again(stage: Stage, tools: Toolbox) -> Run:
    assert tools.pay.gate is not None
    allowed(boss())
    pay = replace(tools.pay, gate=replace(tools.pay.gate, amount="amount USD", same=["name"]))

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(pay, Item(name="pen", amount=5000))
        return End((await ctx.call(pay, Item(name="pen", amount=6000))).ref)

    run = stage.start(agent_of(node, tools=[pay]))
    assert stage.drive() == "parked"
    given(Approval.objects.get(run=run), somebody("gina", "approver_finance"), times=5)
    assert stage.drive() == "parked"
    swept()
    assert stage.drive() == "completed"
    return run


def signed(stage: Stage, tools: Toolbox) -> Run:
    assert tools.pay.gate is not None
    Queue.objects.filter(name="legal").update(proof={"within": 300})
    row = Queue.objects.get(name="legal")
    row.seal()
    row.save()
    QUEUES.forget()
    lea, where = somebody("lea", "approver_legal"), webauthn.site()
    user, device = User.objects.get(pk=lea.person), Device(where.origin, where.rp_id)
    challenge, options = passkeys.to_make(user)
    passkeys.set_up(user, challenge.token, device.make(options), "phone", by=lea)
    asks = replace(tools.pay, gate=replace(tools.pay.gate, queue="legal"))

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(asks, Item(name="one", amount=5000))
        return End((await ctx.call(asks, Item(name="two", amount=6000))).ref)

    run = stage.start(agent_of(node, tools=[asks]))
    for _ in range(2):
        assert stage.drive() == "parked"
        case = Approval.objects.get(run=run, state="open")
        terms = terms_of_yes(case.pk, case.revision, case.plan_hash, "approve", lea.person)
        challenge, options = passkeys.to_use(terms, user)
        check = passkeys.check(user, challenge.token, device.sign(options), terms)
        decide(case.pk, verdict="approve", plan_hash=case.plan_hash, justification="read", by=lea, evidence=check)
    assert stage.drive() == "completed"
    assert Assertion.objects.filter(run_id=run.id).count() == 2
    return run


def talked_about(run: Run) -> None:
    """Ask two people about its question (one answers); delegate it to both and revoke one."""
    fay, ira, ina = somebody("fay", "approver_finance"), somebody("ira", "operator"), somebody("ina", "operator")
    case, why = Approval.objects.get(run=run), "as agreed with the board"
    for one in (ira, ina):
        inquiries.ask(case.id, to=one.name, question="Do you know them?", by=fay)
        delegations.delegate(case.id, to=one.name, justification=why, by=fay)
    inquiries.answer(case.id, 0, answer="For ten years.", by=ira)
    delegations.take_back(case.id, 1, justification=why, by=fay)
