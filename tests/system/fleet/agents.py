"""An agent whose one call lasts until the test ends it, so that it can be killed in the middle."""

from __future__ import annotations

# ruff: noqa: ASYNC110, ASYNC230, ASYNC240  the door is a file, since another process opens it
import asyncio
import os
from pathlib import Path

from pydantic import BaseModel

from durableagents import Agent, Context, End, ReplayClass, ToolCall, tool


class Door(BaseModel):
    """A file whose appearance opens the door."""

    path: str


class Opened(BaseModel):
    attempts: int


@tool(replay_class=ReplayClass.PURE, title="Wait at the door", timeout=110)
async def wait_at_the_door(args: Door, call: ToolCall) -> Opened:
    """Note each time that somebody begins to wait; return when the door is open."""
    knocks = Path(args.path + ".knocks")
    with knocks.open("a", encoding="utf-8") as file:
        file.write("knock\n")
    while not Path(args.path).exists():
        await asyncio.sleep(0.02)
    return Opened(attempts=len(knocks.read_text().splitlines()))


agent = Agent("fleet-patient", "1.0.0", input=Door, state=Door, output=Opened, tools=[wait_at_the_door])


@agent.node(start=True, title="Wait")
async def wait(state: Door, ctx: Context) -> End:
    """Wait until the door is open."""
    return End(await ctx.call(wait_at_the_door, state))


class Count(BaseModel):
    """Number of effects that a run is to have."""

    steps: int
    done: int = 0


class Line(BaseModel):
    text: str


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, title="Add a line")
async def add_line(args: Line, call: ToolCall) -> Line:
    """An effect that nobody deduplicates: a line in a file, written at once and kept."""
    with Path(os.environ["COUNTER_FILE"]).open("a", encoding="utf-8") as file:
        file.write(f"{args.text}\n")
    await asyncio.sleep(0.05)
    return args


counter = Agent("fleet-counter", "1.0.0", input=Count, state=Count, output=Count, tools=[add_line], title="Counter")


@counter.node(start=True, to=("count",), title="Count")
async def count(state: Count, ctx: Context) -> End | str:
    """One effect a visit, until there are enough."""
    await ctx.call(add_line, Line(text=f"{ctx.run_id}/{state.done}"))
    state.done += 1
    return End(state) if state.done == state.steps else "count"


# New code that doesn't load, which a restart must survive.
if "COUNTER_FILE" in os.environ and Path(os.environ["COUNTER_FILE"]).with_name("refuse").exists():
    raise RuntimeError("this version doesn't start")
