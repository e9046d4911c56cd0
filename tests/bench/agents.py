"""Agents that do next to nothing, so that what is measured is what it costs to make it durable."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from durableagents import Agent, Assistant, Context, End, ReplayClass, ToolCall, tool

TEXT = "".join(chr(97 + (i * 7919) % 26) for i in range(900))  # with its envelope about 1 KB on record


class Many(BaseModel):
    steps: int
    per_visit: int = 1_000_000
    rest: float = 0.0


class Place(BaseModel):
    wanted: Many
    done: int = 0


class Number(BaseModel):
    n: int


class Text(BaseModel):
    text: str


@tool(replay_class=ReplayClass.PURE)
async def look(args: Number, call: ToolCall) -> Text:
    return Text(text=TEXT)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY)
async def order(args: Number, call: ToolCall) -> Text:
    return Text(text=TEXT)


def _agent(name: str, using: object) -> Agent:
    agent = Agent(name, "1.0.0", input=Many, state=Place, initial=lambda wanted: Place(wanted=wanted), tools=[using])  # type: ignore[list-item]

    @agent.node(start=True, to=("work",))
    async def work(state: Place, ctx: Context) -> str | End:
        for _ in range(min(state.wanted.per_visit, state.wanted.steps - state.done)):
            await ctx.call(using, Number(n=state.done))  # type: ignore[arg-type]
            state.done += 1
        if state.done < state.wanted.steps:
            return "work"
        if state.wanted.rest:
            await ctx.sleep(state.wanted.rest)
            await ctx.call(look, Number(n=-1))
        return End({"done": state.done})

    return agent


pure_steps = _agent("bench-pure", look)
keyed_steps = _agent("bench-keyed", order)


async def _slow(messages: object, info: object) -> object:
    from pydantic_ai.messages import ModelResponse, TextPart

    await asyncio.sleep(2.0)
    return ModelResponse(parts=[TextPart("done")])


thinker = Assistant(name="slow", instructions="Take your time.", output=Text, offline=_slow)
model_call = Agent(
    "bench-model", "1.0.0", input=Many, state=Place, initial=lambda wanted: Place(wanted=wanted), assistants=[thinker]
)


@model_call.node(start=True)
async def ask(state: Place, ctx: Context) -> End:
    return End({"said": await ctx.model(thinker, "Well?")})
