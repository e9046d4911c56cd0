"""The agent that workers of two releases drive together. It imports what integrators may import and nothing else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel

from durableagents import Agent, Context, End, ReplayClass, ToolCall, tool


class Work(BaseModel):
    name: str
    steps: int


class Entry(BaseModel):
    text: str


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY)
async def book(args: Entry, call: ToolCall) -> Entry:
    """Note entry and key in a file; the upstream's work takes a moment."""
    with Path(os.environ["ROLLING_BOOK"]).open("a", encoding="utf-8") as file:  # noqa: ASYNC230
        file.write(f"{args.text} {call.key}\n")
    await asyncio.sleep(0.15)
    return args


part = Agent("rolling-part", "1.0.0", input=Work, state=Work, output=Entry, tools=[book])


@part.node(start=True)
async def do_part(work: Work, ctx: Context) -> End:
    return End(await ctx.call(book, Entry(text=f"{work.name}.part")))


agent = Agent("rolling", "1.0.0", input=Work, state=Work, output=Entry, tools=[book])


@agent.node(start=True)
async def do(work: Work, ctx: Context) -> End:
    for step in range(work.steps):
        await ctx.call(book, Entry(text=f"{work.name}.{step}"))
        await ctx.sleep(0.5)
    return End(await ctx.child(part, work))
