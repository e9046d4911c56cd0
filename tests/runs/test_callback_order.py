"""Callbacks a hundred at a time, in any order, a week late, and the answer to somebody else's question."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from durableagents import Context, End, ReplayClass, ToolCall, tool
from durableagents import Pending as TakesTime
from ledger import events as e
from ledger.errors import InvalidInput
from runs import services, sweeper
from tests.runs.situations import act
from tests.runs.stage import Stage, at_once, dump, events, facts, fresh, kinds, output, problems
from tests.runs.test_callbacks import TAKEN, due, during_the_call, token_of
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def two_calls(tools: Toolbox) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        first = await ctx.call(tools.ask, Item(name="first"))
        second = await ctx.call(tools.ask, Item(name="second"))
        return End([first.ref, second.ref])

    return agent_of(node, tools=tools.all())


def test_a_hundred_deliveries_at_once_of_both_answers_shuffled_are_one_each(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    """The second call's answer may come while the first one's is still being repeated."""
    run = stage.start(two_calls(tools))
    assert stage.drive() == "parked"
    first = token_of(outside, "0.1/1")
    services.receive_callback(first, {"ref": "one"})
    assert stage.drive() == "parked"
    second = token_of(outside, "0.1/2")
    deliveries = [partial(services.receive_callback, (first, second)[i % 2], {"ref": f"answer {i}"}) for i in range(100)]
    assert at_once(*deliveries[:50]) + at_once(*deliveries[50:]) == [TAKEN] * 100
    assert [event.slot for event in events(run, e.CallbackReceived)] == ["0.1/1", "0.1/2"]
    assert facts(run) == ["pending", "committed"] * 2
    assert stage.drive() == "completed" and output(run)[0] == "one"
    assert problems(run) == []


def test_answers_that_come_in_the_other_order_find_their_calls(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    runs = [stage.start(two_calls(tools)) for _ in range(2)]
    urls = []
    for _ in runs:
        assert stage.drive() == "parked"
        urls.append(token_of(outside))
    for token, run in reversed(list(zip(urls, runs, strict=True))):
        services.receive_callback(token, {"ref": f"for {run.id}"})
    for run in runs:
        assert events(run, e.CallbackReceived)[0].payload == {"ref": f"for {run.id}"}


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_an_answer_a_week_after_the_end_is_kept_and_changes_nothing_else(
    stage: Stage, tools: Toolbox, outside: Outside, ending: str
) -> None:
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
        sweeper.sweep()
        stage.drive()
    assert str(fresh(run).state) == ending
    before = fresh(run)
    for _ in range(3):
        assert services.receive_callback(token_of(outside), {"ref": "a week late"}) == TAKEN
    after = fresh(run)
    assert (after.state, after.ready_at, after.owner, after.end_seq) == (before.state, None, None, before.end_seq)
    kept = [k for k in kinds(run) if k in ("CallbackReceived", "CallbackArrivedLate")]
    assert len(kept) == 1 and stage.drive() == "idle" and problems(run) == []


# --- an answer to somebody else's question ---


def numbered_tool(outside: Outside) -> Any:
    @tool(
        replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Done,
        check_answer=lambda receipt, done: None if done.ref == receipt["ref"] else f"ref is {done.ref!r}, not {receipt['ref']!r}",
    )  # fmt: skip
    async def numbered(args: Item, call: ToolCall) -> TakesTime:
        assert call.callback_url is not None
        outside.urls[call.slot] = call.callback_url
        await outside.take_async("numbered", args, call)
        return TakesTime(receipt={"ref": "REQ-1"})

    return numbered


def test_the_answer_to_another_request_is_refused_and_the_right_one_may_still_come(stage: Stage, outside: Outside) -> None:
    numbered = numbered_tool(outside)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(numbered, Item(name="x"))).ref)

    run = stage.start(agent_of(node, tools=[numbered]))
    assert stage.drive() == "parked"
    before = dump()
    with pytest.raises(InvalidInput) as refused:
        services.receive_callback(token_of(outside), {"ref": "REQ-2"})
    assert "REQ-2" in refused.value.detail and refused.value.extra["errors"][0]["field"] == "body"
    assert dump() == before
    assert services.receive_callback(token_of(outside), {"ref": "REQ-1"}) == TAKEN
    assert stage.drive() == "completed" and output(run) == "REQ-1"


def test_an_early_answer_to_another_request_comes_to_the_node_as_a_failure(stage: Stage, outside: Outside) -> None:
    """When it came nobody knew yet which request was taken."""
    numbered = numbered_tool(outside)

    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(numbered, Item(name="x"))).ref)
        except Exception as error:
            return End(str(error))

    during_the_call(outside, "numbered", {"ref": "REQ-2"})
    run = stage.start(agent_of(node, tools=[numbered]))
    assert stage.drive() == "completed" and "ref is 'REQ-2', not 'REQ-1'" in output(run)
