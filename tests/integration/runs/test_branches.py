from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from durableagents import Context, End, TransportError
from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput, StaleLease
from runs.engine.agents import Agent
from runs.engine.driver import Driver
from runs.models import Run, Wait
from runs.services import lifecycle, questions, reconciling, signals
from runs.workers import timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, at_once, events, fresh, kinds, now, output, waiting
from tests.world import OLGA, SHOP, Done, Item, Notes, Outside, Toolbox, agent_of

OUTPUT = ["pay:p", "mail:m", "order:o", ["look:l", "told"], {"ref": "answered", "amount": 0}]


def everything_at_once(tools: Toolbox) -> Agent:
    async def inner(ctx: Context) -> list[Any]:
        done, found = await ctx.gather(ctx.call(tools.look, Item(name="l")), ctx.signal("go"))
        await ctx.sleep(0)
        return [done.ref, found]

    async def node(state: Notes, ctx: Context) -> End:
        paid, mailed, ordered, both, answer = await ctx.gather(
            ctx.call(tools.pay, Item(name="p", amount=5000)),
            ctx.call(tools.mail, Item(name="m")),
            ctx.call(tools.order, Item(name="o")),
            inner(ctx),
            ctx.ask("legal", title="Which?", schema=Done),
        )
        return End([paid.ref, mailed.ref, ordered.ref, both, answer.model_dump()])

    return agent_of(node, tools=tools.all())


def help_on(stage: Stage, run: Run) -> None:
    for wait in waiting(run):
        match wait.kind:
            case "approval":
                stage.decide(run)
            case "signal":
                signals.signal(run.id, "go", "told", by=SHOP, sender_id="once")
            case "input":
                questions.answer(run.id, wait.id, {"ref": "answered"}, by=OLGA)
            case "timer":
                Wait.objects.filter(pk=wait.pk).update(deadline=now())
                timers.sweep()


def finish(stage: Stage, run: Run) -> None:
    for _ in range(20):
        stage.settle(run)
        check_against_journal(run)
        if fresh(run).state in ("completed", "failed", "cancelled"):
            return
        help_on(stage, run)
    raise AssertionError(f"it never ends: {kinds(run)}")


def test_what_its_branches_wait_for_may_all_come_at_once(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(everything_at_once(tools))
    assert stage.drive() == "parked"
    (question,) = [w for w in waiting(run) if w.kind == "input"]
    answers = at_once(
        partial(stage.decide, run),
        partial(signals.signal, run.id, "go", "told", by=SHOP),
        partial(questions.answer, run.id, question.id, {"ref": "answered"}, by=OLGA),
    )
    assert not [x for x in answers if isinstance(x, Exception)]
    check_against_journal(run)
    finish(stage, run)
    assert output(run) == OUTPUT


def test_a_zombies_branches_write_nothing(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """Its three calls return after another worker has claimed the run: each result is refused."""
    together, over = asyncio.Event(), asyncio.Event()
    arrived: list[str] = []

    async def hold(call: Any) -> None:
        arrived.append(call.tool)
        if len(arrived) == 3:
            together.set()
        await over.wait()

    for name in ("order", "mail", "hooked"):
        outside.trouble(name, hold, when="after")

    async def node(state: Notes, ctx: Context) -> End:
        done = await ctx.gather(*(ctx.call(t, Item(name="z")) for t in (tools.order, tools.mail, tools.hooked)))
        return End([each.ref for each in done])

    agent = agent_of(node, tools=tools.all())
    run = stage.start(agent)
    journal = stage.take(run)
    driver = Driver(agent, journal, stage.runtime, stage.control, trace_id="0" * 32)

    async def outlive() -> list[str]:
        driving = asyncio.ensure_future(driver.drive())
        await asyncio.wait_for(together.wait(), 30)
        await asyncio.to_thread(lambda: at_once(partial(stolen, run)))
        before = await asyncio.to_thread(lambda: at_once(partial(kinds, run))[0])
        over.set()
        with pytest.raises(StaleLease):
            await driving
        return list(before)

    before = stage.wait(outlive())
    assert kinds(run) == before and [x.KIND for x in events(run, e.ToolReturned)] == []
    assert stage.drive(stage.hire()) == "parked"
    (wait,) = waiting(run)
    assert wait.kind == "reconcile", "the unsafe call is a person's to settle; the others were found out"
    assert len(outside.executed("order")) == len(outside.executed("mail")) == len(outside.executed("hooked")) == 1


def stolen(run: Run) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_head SET epoch = epoch + 1, lease = NULL WHERE run_id = %s", [run.id])
        cursor.execute("UPDATE runs_run SET owner = NULL, ready_at = clock_timestamp() WHERE id = %s", [run.id])


def two_in_doubt(stage: Stage, tools: Toolbox, outside: Outside) -> Run:
    async def node(state: Notes, ctx: Context) -> End:
        done = await ctx.gather(ctx.call(tools.mail, Item(name="m")), ctx.call(tools.fax, Item(name="f")))
        return End([each.ref for each in done])

    for name in ("mail", "fax"):
        outside.trouble(name, TransportError("cut"), when="after")
    run = stage.start(agent_of(node, tools=tools.all()))
    assert stage.drive() == "parked" and [w.kind for w in waiting(run)] == ["reconcile"] * 2
    return run


def test_a_verdict_names_its_call_where_several_are_unknown(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """Sent twice, or for a call already settled, it settles no other."""
    run = two_in_doubt(stage, tools, outside)
    mail, fax = sorted(waiting(run), key=lambda wait: wait.slot)
    with pytest.raises(InvalidInput, match="Name one with `wait_id`"):
        stage.reconcile(run, "happened", {"ref": "?"})
    settle = partial(reconciling.reconcile, run.id, verdict="happened", justification="looked it up", by=OLGA)
    answers = at_once(*[partial(settle, receipt={"ref": "the fax"}, wait_id=fax.id)] * 6)
    assert len([x for x in answers if isinstance(x, IllegalTransition)]) == 5
    check_against_journal(run)
    assert stage.drive() == "parked" and [w.id for w in waiting(run)] == [mail.id]
    with pytest.raises(IllegalTransition, match="has already been settled"):
        settle(receipt={"ref": "the fax"}, wait_id=fax.id)
    settle(receipt={"ref": "the mail"}, wait_id=mail.id)
    assert stage.drive() == "completed" and output(run) == ["the mail", "the fax"]
    assert len(outside.executed()) == 2


def test_cancelled_run_settles_every_call_of_unknown_outcome_first(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    run = two_in_doubt(stage, tools, outside)
    lifecycle.cancel(run.id, by=OLGA, justification="not needed")
    for left, wait in enumerate(waiting(run)[::-1]):
        reconciling.reconcile(
            run.id, verdict="happened", receipt={"ref": "x"}, justification="looked", by=OLGA, wait_id=wait.id
        )
        check_against_journal(run)
        assert stage.drive() == ("parked", "cancelled")[left]
    assert waiting(run) == [] and len(outside.executed()) == 2
