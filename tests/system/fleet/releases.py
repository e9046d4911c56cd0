"""An agent of two versions, of which a process has those that its environment names: blue and green."""

from __future__ import annotations

# ruff: noqa: ASYNC230  the file is another process's to read
import asyncio
import os
from pathlib import Path

from pydantic import BaseModel

from durableagents import Agent, Context, End, ReplayClass, ToolCall, tool

NAME = "fleet-release"
OLD, NEW = "1.0.0", "2.0.0"


class Order(BaseModel):
    customer: str


class Line(BaseModel):
    text: str


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, title="Add a line")
async def add_line(args: Line, call: ToolCall) -> Line:
    """An effect that nobody deduplicates: a line in a file, written at once and kept."""
    with Path(os.environ["RELEASE_FILE"]).open("a", encoding="utf-8") as file:
        file.write(f"{args.text}\n")
    await asyncio.sleep(0)
    return args


def _declare(version: str) -> None:
    agent = Agent(NAME, version, input=Order, state=Order, output=Order, tools=[add_line], title="Released")

    @agent.node(start=True, to=("second",), title="First")
    async def first(state: Order, ctx: Context) -> str:
        """An effect, and then the run is parked for a while."""
        await ctx.call(add_line, Line(text=f"{ctx.run_id} {version} first"))
        await ctx.sleep(3)
        return "second"

    @agent.node(title="Second")
    async def second(state: Order, ctx: Context) -> End:
        """Another one."""
        await ctx.call(add_line, Line(text=f"{ctx.run_id} {version} second"))
        return End(state)


for each in os.environ.get("RELEASE_VERSIONS", f"{OLD},{NEW}").split(","):
    _declare(each)
