"""Agents that do next to nothing. Their tools report by datagram, independently of the system under test."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import time
from datetime import datetime
from functools import cache

from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Agent, Assistant, Context, End, ReplayClass, ToolCall, tool
from runs.engine.tools import Tool

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
TEXT = "".join(random.Random(7).choices(LETTERS, k=900))  # about 1 KB with its envelope; hardly compressible
SOCKET_VARIABLE = "DURABLEAGENTS_BENCH_SOCKET"

# Of runs in the bench's own process: when the last tool returned, a step began, a wait was entered.
returned_at: dict[str, float] = {}
began_at: dict[str, float] = {}
waited_at: dict[str, float] = {}


class Many(BaseModel):
    """`steps` calls, `per_visit` in each visit, a pause after each; then `rests` times a rest and a call."""

    steps: int
    per_visit: int = 1_000_000
    rests: int = 0
    pause_seconds: float = 0.0


class Place(Many):
    done: int = 0
    rested: int = 0


class Number(BaseModel):
    n: int


class Text(BaseModel):
    text: str


@tool(replay_class=ReplayClass.PURE)
async def look(args: Number, call: ToolCall) -> Text:
    began_at[call.run_id] = returned_at[call.run_id] = time.perf_counter()
    return Text(text=TEXT)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY)
async def order(args: Number, call: ToolCall) -> Text:
    returned_at[call.run_id] = time.perf_counter()
    return Text(text=TEXT)


def _agent(name: str, using: Tool) -> Agent:
    agent = Agent(name, "1.0.0", input=Many, state=Place, tools=list({using.name: using, "look": look}.values()))

    @agent.node(start=True, to=("work", "rest"))
    async def work(state: Place, ctx: Context) -> str | End:
        for _ in range(min(state.per_visit, state.steps - state.done)):
            await ctx.call(using, Number(n=state.done))
            state.done += 1
            if state.pause_seconds:
                await asyncio.sleep(state.pause_seconds)
        if state.rests and state.done >= state.steps and state.per_visit >= state.steps:
            for _ in range(state.rests):
                await _rest(ctx)
            return End({})
        return "work" if state.done < state.steps else "rest"

    @agent.node(to=("rest",))
    async def rest(state: Place, ctx: Context) -> str | End:
        if state.rested == state.rests:
            return End({})
        await _rest(ctx)
        state.rested += 1
        return "rest"

    return agent


async def _rest(ctx: Context) -> None:
    waited_at[ctx.run_id] = time.perf_counter()
    await ctx.sleep(0.001)
    await ctx.call(look, Number(n=-1))


pure_steps = _agent("bench-pure", look)
keyed_steps = _agent("bench-keyed", order)


# --- in worker processes --------------------------------------------------------------------------


@cache
def _link() -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    link.connect(os.environ[SOCKET_VARIABLE])
    return link


def tell(run_id: str, what: str, key: str | None = None) -> None:
    _link().send(json.dumps([run_id, what, time.monotonic(), os.getpid(), key]).encode())


@tool(replay_class=ReplayClass.PURE)
async def mark(args: Number, call: ToolCall) -> Number:
    tell(call.run_id, "step")
    return args


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY)
async def effect(args: Number, call: ToolCall) -> Number:
    """An upstream that takes 20 ms, and records the request before it answers."""
    tell(call.run_id, "effect", call.key)
    await asyncio.sleep(0.02)
    return args


marked = Agent("bench-mark", "1.0.0", input=Many, state=Place, tools=[mark])
gated = Agent("bench-gate", "1.0.0", input=Many, state=Place, tools=[mark])
effects = Agent("bench-effects", "1.0.0", input=Many, state=Place, tools=[effect])


@marked.node(start=True)
async def begin(state: Place, ctx: Context) -> End:
    await ctx.call(mark, Number(n=0))
    return End({})


@gated.node(start=True)
async def ask(state: Place, ctx: Context) -> End:
    await ctx.approve("finance_po", title="Go on?")
    await ctx.call(mark, Number(n=0))
    return End({})


@effects.node(start=True, to=("act",))
async def act(state: Place, ctx: Context) -> str | End:
    for _ in range(10):
        await ctx.call(effect, Number(n=state.done))
        state.done += 1
    return "act" if state.done < state.steps else End({"done": state.done})


async def _slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    await asyncio.sleep(2.0)
    return ModelResponse(parts=[TextPart("done")])


thinker = Assistant(name="slow", instructions="Take your time.", output=Text, offline=_slow)
model_call = Agent("bench-model", "1.0.0", input=Many, state=Place, assistants=[thinker])


@model_call.node(start=True)
async def ask_model(state: Place, ctx: Context) -> End:
    return End({"said": await ctx.model(thinker, "Well?")})


# --- a conversation -------------------------------------------------------------------------------

MESSAGE = 4096
pages: list[str] = []  # what the tool and the model say, in turn; set by the bench


class Said(BaseModel):
    turns: int


@tool(replay_class=ReplayClass.PURE)
async def read_page(args: Number, call: ToolCall) -> Text:
    return Text(text=pages[args.n])


async def _talk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if 2 * turn + 1 >= len(pages):
        return ModelResponse(parts=[ToolCallPart("final_result", {"turns": turn})])
    return ModelResponse(
        parts=[TextPart(pages[2 * turn]), ToolCallPart("read_page", {"n": 2 * turn + 1}, tool_call_id=f"c{turn}")]
    )


talker = Assistant(name="talker", instructions="Read on.", output=Said, tools=[read_page], offline=_talk, max_turns=500)
talk = Agent("bench-talk", "1.0.0", input=Many, state=Place, assistants=[talker])


@talk.node(start=True)
async def converse(state: Place, ctx: Context) -> End:
    return End({"turns": (await ctx.think(talker, "Read.")).turns})


# The same, longer than the model's window: it is compacted, and records when each turn began.

WINDOW = 24_000
turn_began_at: list[float] = []


async def _talk_on(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    turn_began_at.append(time.perf_counter())
    last = messages[-1].parts[-1]
    turn = int(last.tool_call_id.removeprefix("c")) + 1 if isinstance(last, ToolReturnPart) else 0
    if 2 * turn + 1 >= len(pages):
        return ModelResponse(parts=[ToolCallPart("final_result", {"turns": turn})])
    return ModelResponse(
        parts=[TextPart(pages[2 * turn]), ToolCallPart("read_page", {"n": 2 * turn + 1}, tool_call_id=f"c{turn}")]
    )


rememberer = Assistant(
    name="rememberer",
    instructions="Read on.",
    output=Said,
    tools=[read_page],
    offline=_talk_on,
    max_turns=500,
    window=WINDOW,
)
long_talk = Agent("bench-long-talk", "1.0.0", input=Many, state=Place, assistants=[rememberer])


@long_talk.node(start=True)
async def converse_on(state: Place, ctx: Context) -> End:
    return End({"turns": (await ctx.think(rememberer, "Read.")).turns})


class Alarm(BaseModel):
    at: str


alarmed = Agent("bench-alarm", "1.0.0", input=Alarm, state=Alarm, tools=[mark])


@alarmed.node(start=True)
async def sleep_until(state: Alarm, ctx: Context) -> End:
    await ctx.sleep(until=datetime.fromisoformat(state.at))
    await ctx.call(mark, Number(n=0))
    return End({})


# --- families -------------------------------------------------------------------------------------


class Brood(BaseModel):
    children: int


small = Agent("bench-child", "1.0.0", input=Number, state=Number, output=Number, tools=[order])
family = Agent("bench-family", "1.0.0", input=Brood, state=Brood)


@small.node(start=True)
async def do_little(state: Number, ctx: Context) -> End:
    await ctx.call(order, state)
    return End(state)


@family.node(start=True)
async def have_many(state: Brood, ctx: Context) -> End:
    found = await ctx.gather(*(ctx.child(small, Number(n=n)) for n in range(state.children)))
    return End({"are_in_order": [each.n for each in found] == list(range(state.children))})
