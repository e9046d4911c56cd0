"""An installation that moves to another address repeats a call with its original bytes."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from durableagents import Agent, Context, End, Pending, ReplayClass, ToolCall, TransportError, tool
from runs.engine import memory
from runs.engine.agents import registry
from runs.engine.assistants import Assistant, ModelTurn
from runs.engine.canonical import keyed_hasher
from runs.engine.pipeline import GUARDS
from runs.engine.runtime import RetryPolicy, Runtime


class Form(BaseModel):
    name: str


class Given(BaseModel):
    ok: bool


def _at(address: str) -> Runtime:
    async def no_model(assistant: Assistant, messages: list[object], model: str) -> ModelTurn:
        raise AssertionError("nobody thinks here")

    return Runtime(
        guards=GUARDS,
        hasher=keyed_hasher(b"k" * 32),
        call_secret=b"k" * 32,
        request_model=no_model,
        callback_url=lambda token: f"{address}/callbacks/{token}",
        retry=RetryPolicy(in_place=0.0),
    )


def test_a_repeat_names_the_callback_address_of_the_first_try() -> None:
    seen: list[tuple[str | None, str | None]] = []

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Given)
    async def ask_for_it(args: Form, call: ToolCall) -> Pending:
        seen.append((call.key, call.callback_url))
        if len(seen) == 1:
            raise TransportError("no answer")
        return Pending()

    agent = Agent("moved", "1.0.0", input=Form, state=Form, tools=[ask_for_it])

    @agent.node(start=True)
    async def ask(state: Form, ctx: Context) -> End:
        return End(await ctx.call(ask_for_it, state))

    async def story() -> None:
        run = memory.start(agent, {"name": "n"})
        assert await memory.drive(agent, run, _at("http://old:8000")) == "parked"
        timer = next(w for w in run.open_waits() if w.spec.kind == "timer")
        run.resolve(timer.spec.id, "fired")
        assert await memory.drive(agent, run, _at("https://new")) == "parked"

    try:
        asyncio.run(story())
    finally:
        registry.remove("moved@1.0.0")

    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert (seen[0][1] or "").startswith("http://old:8000/callbacks/")
