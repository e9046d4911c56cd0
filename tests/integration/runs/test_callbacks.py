"""A callback's token is its only authority. It may come early, late, twice, forged or for a run that is gone."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from durableagents import BusinessFailure, Context, End, ReplayClass, ToolCall, TransportError, tool
from durableagents import Pending as TakesTime
from ledger import events as e
from ledger.errors import InvalidInput, NotFound
from runs.engine.agents import registry
from runs.engine.canonical import idempotency_key
from runs.models import Run, Wait
from runs.services import callbacks, lifecycle
from runs.workers import timers
from tests.integration.runs.situations import Situations, act
from tests.integration.runs.stage import (
    Stage,
    calling,
    dump,
    events,
    facts,
    fresh,
    in_thread,
    kinds,
    now,
    output,
    problems,
    waiting,
)
from tests.integration.runs.test_steering import check_form
from tests.tampering import tamper
from tests.world import IN_PLACE, Done, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.every(3)

TAKEN = {"status": "received"}


def token_of(outside: Outside, slot: str = "0.1/1") -> str:
    return outside.urls[slot].rsplit("/", 1)[1]


def test_only_the_hash_of_the_token_is_stored(situations: Situations, outside: Outside) -> None:
    run = situations.make("at_callback")
    token = token_of(outside)
    (wait,) = waiting(run)
    assert len(token) >= 40 and bytes(wait.token_hash or b"") == hashlib.sha256(token.encode()).digest()
    assert token not in repr(Wait.objects.values_list()) and token not in repr(Run.objects.values_list())
    assert token not in repr([x.payload for x in events(run)]) and problems(run) == []


def test_a_run_of_an_older_release_keeps_its_keys_and_tokens(
    situations: Situations, stage: Stage, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(lifecycle, "PROTOCOL", 1)
        run = situations.make("at_callback")
    (sent,) = events(run, e.ToolInvoked)
    assert sent.payload["key"] == idempotency_key(str(run.pk), "0.1/1", 0, None)
    assert sent.payload["callback_token"] == token_of(outside) and problems(run) == []
    assert callbacks.receive_callback(token_of(outside), {"ref": "W-9"}) == TAKEN
    assert stage.drive() == "completed" and output(run) == "W-9" and problems(run) == []


def test_a_changed_token_digest_is_found(situations: Situations) -> None:
    run = situations.make("at_callback")
    tamper("UPDATE runs_wait SET token_hash = sha256('mine') WHERE run_id = %s", run.pk)
    assert [found for found in problems(run) if "token_hash" in found]


def test_an_answer_wakes_the_run_and_is_its_result(situations: Situations, stage: Stage, outside: Outside) -> None:
    run = situations.make("at_callback")
    assert callbacks.receive_callback(token_of(outside), {"ref": "W-9", "more": [1]}) == TAKEN
    assert events(run, e.CallbackReceived)[0].payload == {"ref": "W-9", "more": [1]}, "the body as it came"
    assert facts(run) == ["pending", "committed"]
    check_form(run)
    assert stage.drive() == "completed" and output(run) == "W-9"


def test_repeated_callback_changes_nothing(situations: Situations, stage: Stage, outside: Outside) -> None:
    run = situations.make("at_callback")
    callbacks.receive_callback(token_of(outside), {"ref": "first"})
    for moment in ("before it is driven", "after it ended"):
        before = dump()
        for body in ({"ref": "first"}, {"ref": "another"}, None, {"wrong": 1}):
            assert callbacks.receive_callback(token_of(outside), body) == TAKEN
        assert dump() == before, moment
        stage.drive()
    assert output(run) == "first"


@pytest.mark.parametrize(
    "forged",
    ["", "x", "x" * 10_000, "\x00", "\ud800", "../../etc", "' or 1=1 --", hashlib.sha256(b"x").hexdigest(), "ü" * 43],
)
def test_a_token_that_nobody_gave_out_opens_nothing(situations: Situations, forged: str) -> None:
    situations.make("at_callback")
    before = dump()
    with pytest.raises(NotFound) as refused:
        callbacks.receive_callback(forged, {"ref": "x"})
    assert refused.value.status == 404 and len(refused.value.detail) < 200
    assert dump() == before


def test_the_hash_of_a_token_is_not_a_token(situations: Situations, outside: Outside) -> None:
    situations.make("at_callback")
    with pytest.raises(NotFound):
        callbacks.receive_callback(hashlib.sha256(token_of(outside).encode()).hexdigest(), {"ref": "x"})


@pytest.mark.parametrize("body", [None, [], "text", 7, {}, {"ref": None}, {"ref": ["x"]}, {"amount": 1}])
def test_invalid_body_records_nothing(situations: Situations, stage: Stage, outside: Outside, body: Any) -> None:
    run = situations.make("at_callback")
    before = dump()
    with pytest.raises(InvalidInput) as refused:
        callbacks.receive_callback(token_of(outside), body)
    assert refused.value.extra["errors"] and dump() == before
    assert callbacks.receive_callback(token_of(outside), {"ref": "right"}) == TAKEN
    assert stage.drive() == "completed" and output(run) == "right"


def test_unknown_agent_takes_the_answer_as_it_is(situations: Situations, stage: Stage, outside: Outside) -> None:
    run = situations.make("at_callback")
    registry.remove(situations.agent.graph_id)
    callbacks.receive_callback(token_of(outside), {"ref": "kept"})
    registry.add(situations.agent)
    assert stage.drive() == "completed" and output(run) == "kept"


# --- early ---


def during_the_call(outside: Outside, name: str, body: Any, *, then: Exception | None = None) -> None:
    """Let the system call back before it has answered the call."""

    async def quick(call: ToolCall) -> None:
        import asyncio

        assert call.callback_url is not None
        token = call.callback_url.rsplit("/", 1)[1]
        await asyncio.to_thread(in_thread, partial(callbacks.receive_callback, token, body))
        if then is not None:
            raise then

    outside.trouble(name, quick, when="after")


def asking(tools: Toolbox, name: str = "ask") -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(getattr(tools, name), Item(name="form"))).ref)
        except Exception as error:
            return End(f"swallowed {error}")

    return agent_of(node, tools=tools.all())


def test_answer_before_acceptance_is_kept(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(asking(tools))
    during_the_call(outside, "ask", {"ref": "early"})
    assert stage.drive() == "completed" and output(run) == "early"
    assert len(outside.requests) == 1


@pytest.mark.parametrize("name", ["ask", "ring"])
@pytest.mark.parametrize("then", [TransportError("cut"), KeyError("a bug"), BusinessFailure("no")], ids=repr)
def test_early_answer_stands(stage: Stage, tools: Toolbox, outside: Outside, name: str, then: Exception) -> None:
    """The answer proves that it happened: nothing is resent, asked or overwritten."""
    run = stage.start(asking(tools, name))
    during_the_call(outside, name, {"ref": "early"}, then=then)
    for _ in range(4):
        try:
            how = stage.drive()
        except Exception:  # the engine's error that it could not write: the host releases the run
            Run.objects.filter(pk=run.pk).update(owner=None, ready_at=now())
            continue
        if how == "failed":
            act("retry", run)
        elif how not in ("idle", "parked"):
            break
        timers.sweep()
    assert str(fresh(run).state) == "completed" and output(run) == "early"
    assert len(outside.requests) == 1 and waiting(run) == []
    assert problems(run) == []


def test_an_answer_after_the_worker_died_in_the_call_settles_it(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(asking(tools, "ring"))
    stage.kill_at = [("CP4", "ring")]
    assert stage.settle(run) == "parked" and waiting(run)[-1].kind == "reconcile"
    assert callbacks.receive_callback(token_of(outside), {"ref": "it did happen"}) == TAKEN
    assert waiting(run) == [], "nobody needs to look any more"
    check_form(run)
    assert stage.drive() == "completed" and output(run) == "it did happen"
    assert len(outside.requests) == 1


def test_a_call_that_was_answered_is_not_repeated_in_place(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    stage.retry = IN_PLACE
    run = stage.start(asking(tools))
    during_the_call(outside, "ask", {"ref": "early"}, then=TransportError("cut"))
    assert stage.drive() == "completed" and output(run) == "early"
    assert len(outside.requests) == 1 and "ToolRedispatched" not in kinds(run)


def test_answer_after_a_verdict_keeps_what_the_node_saw(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """A replay must see the receipt that the live run used."""

    async def node(state: Notes, ctx: Context) -> End:
        seen = (await ctx.call(tools.ring, Item(name="form"))).ref
        await ctx.sleep(3600)
        return End(seen)

    run = stage.start(agent_of(node, tools=tools.all()))
    outside.trouble("ring", TransportError("cut"), when="after")
    assert stage.drive() == "parked"
    stage.reconcile(run, "happened", {"ref": "looked up"})
    assert stage.drive() == "parked" and [w.kind for w in waiting(run)] == ["timer"]
    assert callbacks.receive_callback(token_of(outside), {"ref": "called back"}) == TAKEN
    assert len(events(run, e.CallbackArrivedLate)) == 1
    due(run)
    timers.sweep()
    assert stage.drive() == "completed" and output(run) == "looked up"


# --- late ---


def due(run: Run) -> None:
    Wait.objects.filter(run=run, resolved_at=None).update(deadline=now() - timedelta(seconds=1))


def test_answer_after_its_deadline_has_no_effect(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.ask, Item(name="form"))
        except Exception as error:
            await ctx.sleep(3600)
            return End(str(error))
        return End("answered")

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    due(run)
    timers.sweep()
    assert stage.drive() == "parked", "it gave up on the answer and sleeps"
    state, ready = str(fresh(run).state), fresh(run).ready_at
    for _ in range(3):
        assert callbacks.receive_callback(token_of(outside), {"ref": "late"}) == TAKEN
    assert (str(fresh(run).state), fresh(run).ready_at) == (state, ready)
    assert len(events(run, e.CallbackArrivedLate)) == 1 and not events(run, e.CallbackReceived)
    due(run)
    timers.sweep()
    assert stage.drive() == "completed" and "no callback came" in output(run)


def test_answer_after_the_failure_serves_the_retry(situations: Situations, stage: Stage, outside: Outside) -> None:
    run = situations.make("at_callback")
    due(run)
    timers.sweep()
    assert stage.drive() == "failed" and fresh(run).error_code == "no_answer"
    assert callbacks.receive_callback(token_of(outside), {"ref": "a week late"}) == TAKEN
    assert str(fresh(run).state) == "failed"
    act("retry", run)
    assert stage.drive() == "completed" and output(run) == "a week late"
    assert len(outside.requests) == 1


def test_answer_under_a_pause_wakes_nothing(situations: Situations, stage: Stage, outside: Outside) -> None:
    run = situations.make("paused_at_callback")
    assert callbacks.receive_callback(token_of(outside), {"ref": "meanwhile"}) == TAKEN
    assert stage.drive() == "idle" and fresh(run).is_woken
    act("resume", run)
    assert stage.drive() == "completed" and output(run) == "meanwhile"


# --- the wait itself ---


def test_the_time_that_the_tool_gave_is_the_deadline(stage: Stage) -> None:
    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Done)
    async def slow(args: Item, call: ToolCall) -> TakesTime:
        return TakesTime(receipt={"ticket": 7}, within=timedelta(hours=3))

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.call(slow, Item(name="x")))

    run = stage.start(agent_of(node, tools=[slow]))
    assert stage.drive() == "parked"
    (wait,) = waiting(run)
    assert abs((wait.deadline - now()) - timedelta(hours=3)) < timedelta(minutes=1)
    (accepted,) = events(run, e.ToolAccepted)
    assert accepted.payload["receipt"] == {"ticket": 7}
    assert datetime.fromisoformat(accepted.payload["deadline"]) == wait.deadline


def test_a_call_that_was_refused_waits_for_no_answer(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.ask, Item(name="form"))
        except Exception:
            await ctx.sleep(3600)
        return End("went another way")

    outside.trouble("ask", BusinessFailure("we don't do forms"), when="after")
    run = stage.start(agent_of(node, tools=tools.all()))
    assert stage.drive() == "parked"
    assert [wait.kind for wait in waiting(run)] == ["timer"], "nobody is told that a callback is awaited"
    before = str(fresh(run).state)
    assert callbacks.receive_callback(token_of(outside), {"ref": "on second thoughts"}) == TAKEN
    assert str(fresh(run).state) == before and len(events(run, e.CallbackArrivedLate)) == 1
    due(run)
    timers.sweep()
    assert stage.drive() == "completed" and output(run) == "went another way"


def test_retry_opens_a_withdrawn_callback_wait_again(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The end withdrew the wait; with it withdrawn the retried run could neither park nor be answered."""

    run = stage.start(calling(tools, "ask", "form"))
    outside.trouble("ask", KeyError("a bug"), when="after")
    assert stage.drive() == "failed"
    act("retry", run)
    assert stage.drive() == "parked" and [w.kind for w in waiting(run)] == ["webhook"]
    assert callbacks.receive_callback(token_of(outside), {"ref": "in the end"}) == TAKEN
    assert stage.drive() == "completed" and output(run) == "in the end"
    assert len({r.key for r in outside.requests}) == 1
