"""Runs that leave rows of every kind, and ways to change each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from durableagents import BusinessFailure, Context, End, Flag, Keyword, Keywords, Number, TransportError
from ledger.actors import Actor
from runs.engine.agents import Agent
from runs.models import Run, Wait
from runs.services import callbacks, lifecycle, questions, signals
from runs.services.messages import sending
from runs.workers import failover
from tests.integration.runs.stage import Stage, calling
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
