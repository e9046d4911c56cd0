"""Callbacks by the hundred, in any order, a week late, and for another request."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from durableagents import BusinessFailure, Context, End, ReplayClass, ToolCall, tool
from durableagents import Pending as TakesTime
from ledger import events as e
from ledger.errors import InvalidInput
from runs.services import callbacks
from runs.services.late_results import lost_worker, record_late_result
from runs.workers import timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, at_once, calling, dump, events, facts, fresh, kinds, output, problems
from tests.integration.runs.test_callbacks import TAKEN, due, during_the_call, token_of
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of


def two_calls(tools: Toolbox) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        first = await ctx.call(tools.ask, Item(name="first"))
        second = await ctx.call(tools.ask, Item(name="second"))
        return End([first.ref, second.ref])

    return agent_of(node, tools=tools.all())


def test_many_concurrent_deliveries_are_recorded_once(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The second call's answer may come while the first one's is still repeated."""
    run = stage.start(two_calls(tools))
    assert stage.drive() == "parked"
    first = token_of(outside, "0.1/1")
    callbacks.receive_callback(first, {"ref": "one"})
    assert stage.drive() == "parked"
    second = token_of(outside, "0.1/2")
    deliveries = [
        partial(callbacks.receive_callback, (first, second)[i % 2], {"ref": f"answer {i}"}) for i in range(48)
    ]
    assert at_once(*deliveries[:24]) + at_once(*deliveries[24:]) == [TAKEN] * 48
    assert [event.slot for event in events(run, e.CallbackReceived)] == ["0.1/1", "0.1/2"]
    assert facts(run) == ["pending", "committed"] * 2
    assert stage.drive() == "completed" and output(run)[0] == "one"
    assert problems(run) == []


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_answer_after_the_end_changes_nothing_else(stage: Stage, tools: Toolbox, outside: Outside, ending: str) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.ask, Item(name="form"))
        except Exception:
            if ending == "failed":
                raise
        return End("gave up")

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    if ending == "cancelled":
        act("cancel", run)
    else:
        due(run)
        timers.sweep()
        stage.drive()
    assert str(fresh(run).state) == ending
    before = fresh(run)
    for _ in range(3):
        assert callbacks.receive_callback(token_of(outside), {"ref": "a week late"}) == TAKEN
    after = fresh(run)
    assert (after.state, after.ready_at, after.owner, after.end_seq) == (before.state, None, None, before.end_seq)
    kept = [k for k in kinds(run) if k in ("CallbackReceived", "CallbackArrivedLate")]
    assert len(kept) == 1 and stage.drive() == "idle" and problems(run) == []


# --- another request's answer ---


def numbered_tool(outside: Outside) -> Any:
    @tool(
        replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
        answers_later=True,
        output=Done,
        check_answer=lambda receipt, done: (
            None if done.ref == receipt["ref"] else f"ref is {done.ref!r}, not {receipt['ref']!r}"
        ),
    )
    async def numbered(args: Item, call: ToolCall) -> TakesTime:
        assert call.callback_url is not None
        outside.urls[call.slot] = call.callback_url
        await outside.take_async("numbered", args, call)
        return TakesTime(receipt={"ref": "REQ-1"})

    return numbered


def test_answer_to_another_request_is_refused_and_the_right_one_taken(stage: Stage, outside: Outside) -> None:
    numbered = numbered_tool(outside)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(numbered, Item(name="x"))).ref)

    run = stage.start(agent_of(node, tools=[numbered]))
    assert stage.drive() == "parked"
    before = dump()
    with pytest.raises(InvalidInput) as refused:
        callbacks.receive_callback(token_of(outside), {"ref": "REQ-2"})
    assert "REQ-2" in refused.value.detail and refused.value.extra["errors"][0]["field"] == "body"
    assert dump() == before
    assert callbacks.receive_callback(token_of(outside), {"ref": "REQ-1"}) == TAKEN
    assert stage.drive() == "completed" and output(run) == "REQ-1"


def test_an_early_answer_to_another_request_comes_to_the_node_as_a_failure(stage: Stage, outside: Outside) -> None:
    """On arrival nobody knew yet which request had been accepted."""
    numbered = numbered_tool(outside)

    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(numbered, Item(name="x"))).ref)
        except Exception as error:
            return End(str(error))

    during_the_call(outside, "numbered", {"ref": "REQ-2"})
    run = stage.start(agent_of(node, tools=[numbered]))
    assert stage.drive() == "completed" and "ref is 'REQ-2', not 'REQ-1'" in output(run)


# --- two answers to one call: the first recorded one is valid ---


@pytest.mark.parametrize("name", ["ask", "ring"])
def test_early_answer_outranks_a_later_refusal(stage: Stage, tools: Toolbox, outside: Outside, name: str) -> None:
    """The system calls back and then refuses the request it has answered."""

    during_the_call(outside, name, {"ref": "early"}, then=BusinessFailure("no", code="no_credit"))
    run = stage.start(calling(tools, name, "form"))
    assert stage.drive() == "completed" and output(run) == "early"
    assert facts(run) == ["pending", "committed"] and not events(run, e.ToolFailed)
    (answer,) = stage.late
    assert answer.failure is not None and record_late_result(answer, lost_worker(stage.worker.id)) is False
    (found,) = events(run, e.ToolAnsweredLate)
    assert (found.outcome, found.payload["code"]) == ("refused", "no_credit"), (
        "the refusal is on record, without effect"
    )
    check_against_journal(run)
