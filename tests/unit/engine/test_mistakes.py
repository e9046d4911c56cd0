"""An author's mistake ends in a clear error, not in a completed run without its result."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from durableagents import Assistant, Context, End
from ledger import events as e
from runs.engine.runtime import RetryPolicy, Runtime
from runs.engine.thinking.request import request_model
from tests.unit.engine.story import Story
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of


class Form(BaseModel):
    text: str = ""


FORGOTTEN: dict[str, Callable[[Context, Toolbox], Any]] = {
    "call": lambda ctx, tools: ctx.call(tools.order, Item(name="a")),
    "sleep": lambda ctx, tools: ctx.sleep(5),
    "signal": lambda ctx, tools: ctx.signal("word"),
    "ask": lambda ctx, tools: ctx.ask("operator", title="?", schema=Form),
    "approve": lambda ctx, tools: ctx.approve("legal", title="?"),
    "gather": lambda ctx, tools: ctx.gather(ctx.call(tools.order, Item(name="a"))),
    "uuid": lambda ctx, tools: ctx.uuid(),
}


@pytest.mark.parametrize("verb", FORGOTTEN)
async def test_a_forgotten_await_fails_the_run(tools: Toolbox, outside: Outside, verb: str) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        FORGOTTEN[verb](ctx, tools)
        return End("done, it thinks")

    story = Story(agent_of(node, tools=tools.all()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await story.drive() == "failed"
    assert story.failure.code == "not_awaited" and outside.requests == []
    assert f"ctx.{verb}(…)" in story.failure.payload["message"] and "write `await " in story.failure.payload["message"]


async def test_a_retry_with_the_await_in_place_goes_on(tools: Toolbox, outside: Outside) -> None:
    async def first(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.look, Item(name="before"))
        ctx.call(tools.order, Item(name="a"))  # type: ignore[unused-coroutine]
        return End()

    async def mended(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.look, Item(name="before"))
        return End((await ctx.call(tools.order, Item(name="a"))).ref)

    mended.__name__ = "first"
    story = Story(agent_of(first, tools=tools.all()))
    assert await story.drive() == "failed"
    story.retry_run()
    assert await story.drive(agent_of(mended, tools=tools.all())) == "completed" and story.output == "order:a"


async def test_calls_that_a_gather_did_not_begin_are_not_forgotten_ones(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        never = ctx.call(tools.order, Item(name="never"))
        with pytest.raises(TypeError):
            await ctx.gather(never, "no coroutine")  # type: ignore[arg-type]
        return End("told")

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "completed" and story.output == "told"


async def test_a_thousand_calls_that_are_awaited_leave_nothing_behind(tools: Toolbox) -> None:
    kept: list[int] = []

    async def node(state: Notes, ctx: Context) -> End:
        for n in range(200):
            await ctx.call(tools.look, Item(name=str(n)))
        kept.append(len(ctx._not_begun))
        return End()

    assert await Story(agent_of(node, tools=tools.all())).drive() == "completed" and kept == [0]


# --- unknown people ---


@pytest.mark.parametrize("asks", ["a gate", "approve", "ask"])
async def test_whom_nobody_answers_for_is_not_waited_for(tools: Toolbox, outside: Outside, asks: str) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        match asks:
            case "a gate":
                await ctx.call(tools.pay, Item(name="a", amount=5000))
            case "approve":
                await ctx.approve("finance_po", title="May I?")
            case "ask":
                await ctx.ask("finance_po", title="What?", schema=Form)
        return End()

    class Known(Story):
        @property
        def runtime(self) -> Runtime:
            return replace(super().runtime, queues=self.known, people=self.known)

        known = frozenset({"legal"})

    story = Known(agent_of(node, tools=tools.all()))
    assert await story.drive() == "operator" and story.found.reason == "unknown_queue"
    assert story.found.payload["known"] == ["legal"] and "'finance_po'" in story.found.payload["problem"]
    assert not story.events(e.ApprovalRequested) and outside.requests == []
    story.known = frozenset({"finance_po"})  # of a policy that has it
    (operator,) = story.waiting("operator")
    story.run.resolve(operator[0], "retried")
    assert await story.drive() == "parked" and story.run.state == "waiting_human"


# --- rules that fail ---


async def test_failing_rule_gates(tools: Toolbox, outside: Outside, caplog: pytest.LogCaptureFixture) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.pay, Item(name="a", amount=666))).ref)

    story = Story(agent_of(node, tools=tools.all()))
    with caplog.at_level(logging.WARNING, "durableagents.engine"):
        assert await story.drive() == "parked" and outside.requests == []
    (question,) = story.events(e.ApprovalRequested)
    assert (
        question.rule
        == question.payload["rule"]
        == "orders from 1000 (the rule itself failed with RuntimeError: the rule itself is broken, which counts as yes)"
    )
    assert [r.getMessage() for r in caplog.records if "the rule itself is broken" in r.getMessage()]
    story.decide()
    assert await story.drive() == "completed" and story.output == "pay:a"


async def test_a_headline_that_fails_stops_nobody_from_deciding(tools: Toolbox) -> None:
    assert tools.pay.gate is not None
    odd = replace(tools.pay, gate=replace(tools.pay.gate, headline=lambda args: 1 / 0))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(odd, Item(name="a", amount=5000))).ref)

    story = Story(agent_of(node, tools=[odd]))
    assert await story.drive() == "parked"
    assert story.events(e.ApprovalRequested)[0].payload["headline"] == ""


# --- a model that neither answers nor disconnects ---


async def test_a_model_that_never_answers_is_an_outage_and_fails_no_run() -> None:
    items: list[str] = []

    async def silent(assistant: Assistant, messages: list[Any], model: str) -> Any:
        items.append(assistant.name)
        if len(items) < 3:
            await asyncio.Event().wait()
        return given

    def answer(messages: Any, info: Any) -> Any:
        from pydantic_ai.messages import ModelResponse, ToolCallPart

        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"ref": "x"})])

    mind = Assistant("mind", "think", Done, offline=answer, timeout=0.05)

    given = await request_model(mind, [])

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(mind, "go")).ref)

    story = Story(
        agent_of(node, assistants=[mind]),
        model=silent,
        retry=RetryPolicy(first=0, longest=0, in_place=-1, timer_first=0, timer_longest=0),
    )
    assert await story.drive() == "parked" and story.run.state == "waiting_event"
    assert "no answer from the model within 0.05 s" in story.one_waiting("timer")[1].spec.detail["error"]
    assert await story.settle() == "completed" and story.output == "x" and len(items) == 3
    assert len(story.events(e.ModelRequested)) == 1
