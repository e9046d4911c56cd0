from __future__ import annotations

from typing import Any

import pytest

from durableagents import BusinessFailure, Context, End, Failure, TransportError
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.canonical import callback_token
from runs.journal.digests import call_secret
from runs.models import Process, Run, Wait
from runs.services import callbacks
from runs.services.late_results import lost_worker, record_late_result
from runs.workers import failover, timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Mood, Stage, calling, events, facts, fresh, in_thread, kinds, output, waiting
from tests.integration.runs.test_callbacks import TAKEN, due, token_of
from tests.integration.runs.test_late import comes_back, tells
from tests.integration.runs.test_steering import is_sound
from tests.world import Item, Notes, Outside, Toolbox, agent_of


def ordering_elsewhere(tools: Toolbox, mood: Mood) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            first = (await ctx.call(tools.ask, Item(name="at A"))).ref
        except Exception:
            first = (await ctx.call(tools.order, Item(name="at B"))).ref
        if mood.is_bad:
            raise Failure("the printer is out of paper", code="no_paper")
        return End({"first": first})

    return agent_of(node, tools=tools.all())


def said_of(run: Run) -> str:
    found = events(run, e.OperatorNeeded)[-1]
    assert found.reason == "late_news"
    return str(found.payload["problem"])


def failed_elsewhere(stage: Stage, tools: Toolbox, mood: Mood) -> Run:
    run = stage.start(ordering_elsewhere(tools, mood))
    assert stage.drive() == "parked"
    due(run)
    timers.sweep()
    assert stage.drive() == "failed" and fresh(run).error_code == "no_paper"
    mood.is_bad = False
    return run


def test_late_answer_does_not_rewrite_the_past(stage: Stage, tools: Toolbox, outside: Outside, mood: Mood) -> None:
    run = failed_elsewhere(stage, tools, mood)
    assert callbacks.receive_callback(token_of(outside), {"ref": "late-A"}) == TAKEN
    assert len(events(run, e.CallbackArrivedLate)) == 1 and not events(run, e.CallbackReceived)
    act("retry", run)
    sent = len(outside.requests)
    assert stage.drive() == "operator", "somebody looks at it before anything goes on"
    (found,) = events(run, e.OperatorNeeded)
    assert found.reason == "late_news"
    assert found.payload["late"] == [
        {
            "slot": "0.1/1",
            "attempt": 0,
            "tool": "ask",
            "came": "CallbackArrivedLate",
            "told": "called back",
            "on_record": "no_answer",
        }
    ]
    assert "keeps to what is on record, and sends nothing for it" in said_of(run)
    is_sound(run)
    act("retry", run)
    assert stage.drive() == "completed" and output(run) == {"first": "order:at B"}
    assert len(outside.requests) == sent, "what was done at B is answered from the journal, and A is sent nothing"
    check_against_journal(run)


def test_someone_who_looks_may_end_the_run_instead(stage: Stage, tools: Toolbox, outside: Outside, mood: Mood) -> None:
    run = failed_elsewhere(stage, tools, mood)
    callbacks.receive_callback(token_of(outside), {"ref": "late-A"})
    act("retry", run)
    assert stage.drive() == "operator"
    act("cancel", run)
    assert str(fresh(run).state) == "cancelled" and waiting(run) == []
    check_against_journal(run)


def test_first_retry_shows_late_results_once(stage: Stage, tools: Toolbox, outside: Outside, mood: Mood) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.ask, Item(name="at A"))
        except Exception:
            await ctx.call(tools.order, Item(name="at B"))
        await ctx.sleep(3600)
        if mood.is_bad:
            raise Failure("later")
        return End("well")

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    due(run)
    timers.sweep()
    assert stage.drive() == "parked", "it sleeps"
    callbacks.receive_callback(token_of(outside), {"ref": "late-A"})
    due(run)
    timers.sweep()
    assert stage.drive() == "failed"
    act("retry", run)
    assert stage.drive() == "operator"
    act("retry", run)
    assert stage.drive() == "failed", "told once; then it goes on as it was"
    mood.is_bad = False
    act("retry", run)
    assert stage.drive() == "completed" and len(events(run, e.OperatorNeeded)) == 1


def test_earlier_visits_late_result_is_shown(stage: Stage, tools: Toolbox, outside: Outside, mood: Mood) -> None:
    async def first(state: Notes, ctx: Context) -> str:
        try:
            await ctx.call(tools.ask, Item(name="at A"))
        except Exception:
            await ctx.call(tools.look, Item(name="prices"))
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        if mood.is_bad:
            raise Failure("later")
        return End("well")

    run = stage.start(agent_of(first, second, tools=tools.all()))
    stage.drive()
    due(run)
    timers.sweep()
    assert stage.drive() == "failed"
    callbacks.receive_callback(token_of(outside), {"ref": "late-A"})
    assert len(events(run, e.CallbackArrivedLate)) == 1
    act("retry", run)
    assert stage.drive() == "operator" and events(run, e.OperatorNeeded)[0].reason == "late_news"


def test_agreeing_answer_is_no_news(stage: Stage, tools: Toolbox, outside: Outside, mood: Mood) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        seen = (await ctx.call(tools.ring, Item(name="form"))).ref
        if mood.is_bad:
            raise Failure("later")
        return End(seen)

    outside.trouble("ring", TransportError("cut"), when="after")
    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    stage.reconcile(run, "happened", {"ref": "looked up"})
    assert stage.drive() == "failed"
    callbacks.receive_callback(token_of(outside), {"ref": "called back"})
    mood.is_bad = False
    act("retry", run)
    assert stage.drive() == "completed" and output(run) == "looked up"


def test_refused_call_with_an_answer_is_not_repeated_unasked(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    outside.trouble("ask", BusinessFailure("no", code="no_credit"), when="after")
    run = stage.start(agent_of(asking(tools), tools=tools.all()))
    assert stage.drive() == "failed"
    callbacks.receive_callback(token_of(outside), {"ref": "on second thoughts"})
    act("retry", run)
    assert stage.drive() == "operator" and len(outside.requests) == 1
    assert "doesn't go out again before a person" in said_of(run) and "sends nothing for it" not in said_of(run)
    act("retry", run)
    assert stage.drive() == "parked" and len(outside.requests) == 1
    assert [(w.kind, w.attempt) for w in waiting(run)] == [("reconcile", 0)]
    act("happened", run)
    assert stage.drive() == "completed" and output(run) == "seen" and len(outside.requests) == 1
    check_against_journal(run)


def asking(tools: Toolbox) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.ask, Item(name="form"))).ref)

    return node


# --- answers of workers that lost the run ---


def failed_unknown(stage: Stage, tools: Toolbox) -> tuple[Run, Any]:
    run = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail")
    assert stage.drive() == "parked"
    act("fail", run)
    return run, worker


def test_retry_uses_a_late_result_that_came_after_the_end(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run, worker = failed_unknown(stage, tools)
    before = str(fresh(run).state), facts(run)
    assert tells(stage, worker) is False
    assert (str(fresh(run).state), facts(run)) == before and kinds(run)[-1] == "ToolAnsweredLate", (
        "no verdict behind the end"
    )
    act("retry", run)
    assert waiting(run) == []
    check_against_journal(run)
    assert stage.drive() == "completed" and output(run) == "mail:a" and len(outside.requests) == 1
    settled = events(run, e.ToolReconciled)[-1]
    assert (settled.verdict, settled.by) == ("happened", f"worker:{worker.id}")
    assert facts(run) == ["pending", "unknown", "reconciled", "reconciled"]
    is_sound(run)


def test_late_answer_to_a_repeated_call_has_no_effect(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The repeat gets the answer itself: otherwise one attempt would have two outcomes."""
    run = stage.start(calling(tools, "order"))
    worker = comes_back(stage, run, "order")
    (answer,) = stage.late

    async def meanwhile(call: Any) -> None:
        import asyncio

        assert await asyncio.to_thread(in_thread, lambda: record_late_result(answer, lost_worker(worker.id))) is False

    outside.trouble("order", meanwhile, when="after")
    assert stage.drive() == "completed"
    assert facts(run) == ["pending", "committed"] and len(events(run, e.ToolAnsweredLate)) == 1
    is_sound(run)


def test_contradicted_verdict_is_looked_at_first(stage: Stage, tools: Toolbox, outside: Outside, mood: Mood) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.mail, Item(name="a"))
        return End("well")

    run = stage.start(agent_of(node, tools=tools.all()))
    worker = comes_back(stage, run, "mail")
    assert stage.drive() == "parked"
    Process.objects.filter(pk=worker.id).update(end_cause="proof")
    stage.reconcile(run, "did_not")
    (claimed,) = stage.claim()
    failover.engine_failed(run.id, stage.worker.id, "it broke here")  # before the next attempt was sent
    assert tells(stage, worker) is False
    act("retry", run)
    assert stage.drive() == "operator" and events(run, e.OperatorNeeded)[-1].reason == "late_news"
    assert len(outside.requests) == 1 and claimed.run_id == run.id


# --- answers that never came ---


def given_up(stage: Stage, tools: Toolbox, name: str = "ask") -> Run:
    run = stage.start(calling(tools, name, "form"))
    assert stage.drive() == "parked"
    due(run)
    timers.sweep()
    assert stage.drive() == "failed" and fresh(run).error_code == "no_answer"
    return run


@pytest.mark.parametrize("name", ["ask", "ring"])
def test_retry_waits_again_for_a_missing_callback(stage: Stage, tools: Toolbox, outside: Outside, name: str) -> None:
    run = given_up(stage, tools, name)
    act("retry", run)
    check_against_journal(run)
    assert stage.drive() == "parked" and len(outside.requests) == 1, "nothing is sent"
    assert {w.kind for w in waiting(run)} == {"webhook", "reconcile"} and str(fresh(run).state) == "waiting_human"
    is_sound(run)
    assert callbacks.receive_callback(token_of(outside), {"ref": "in the end"}) == TAKEN
    assert waiting(run) == [] and stage.drive() == "completed" and output(run) == "in the end"
    check_against_journal(run)


def test_an_outage_longer_than_the_deadline_fails_nothing(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """A callback's time runs from the acceptance, not from the intent."""
    outside.trouble("ask", TransportError("away"))
    run = stage.start(agent_of(asking(tools), tools=tools.all()))
    assert stage.drive() == "parked" and {w.kind for w in waiting(run)} == {"webhook", "timer"}
    due(run)
    timers.sweep()
    assert "webhook" in {w.kind for w in waiting(run)}
    assert stage.drive() == "parked"
    (wait,) = waiting(run)
    assert wait.kind == "webhook" and not wait.is_overdue, "it has the time that the tool gave"
    due(run)
    timers.sweep()
    assert stage.drive() == "failed" and fresh(run).error_code == "no_answer", "from here on it counts"


def test_retry_opens_only_waits_that_the_journal_has(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """One of three branches fails. The second is answered after the end: nothing of it may wait any more."""

    async def node(state: Notes, ctx: Context) -> End:
        call = ctx.call(tools.ask, Item(name="form"))
        gated = ctx.call(tools.pay, Item(name="po", amount=5000))
        broken = ctx.call(tools.read_file, Item(name="x"))
        return End([each.ref for each in await ctx.gather(call, gated, broken)])

    outside.trouble("ask", TransportError("away"))
    outside.trouble("read_file", KeyError("a bug"))
    run = stage.start(agent_of(node, tools=tools.all()))
    how = stage.drive()
    assert how == "failed", how
    open_before = {(w.kind, w.slot) for w in Wait.objects.filter(run=run, resolution="withdrawn")}
    assert ("timer", "0.1/1/0/1") in open_before or ("webhook", "0.1/1/0/1") in open_before
    assert callbacks.receive_callback(_token(run, outside), {"ref": "meanwhile"}) == TAKEN
    act("retry", run)
    check_against_journal(run)
    assert not [w for w in waiting(run) if w.slot == "0.1/1/0/1"]


def _token(run: Run, outside: Outside) -> str:
    found = [x for x in events(run, e.ToolInvoked) if x.tool == "ask"]
    return callback_token(str(run.pk), str(found[0].slot), found[0].attempt, call_secret())
