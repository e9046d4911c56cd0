"""Agents with a limited tool, for the tests' worker processes: each call logs its begin, end and worker to a file."""

from __future__ import annotations

import asyncio
import os
import time

from pydantic import BaseModel

from durableagents import Agent, Context, End, RateLimit, ReplayClass, ToolCall, tool


class Job(BaseModel):
    """Duration of the work and where it is reported."""

    path: str
    seconds: float = 0.05


class Done(BaseModel):
    pid: int


LIMIT = RateLimit(per_minute=6000, at_once=3, burst=10)


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, rate_limit=RateLimit(per_minute=6000, at_once=3, burst=10), timeout=5
)
async def file_it(args: Job, call: ToolCall) -> Done:
    """Write down that it began and ended."""
    _tell(args.path, "+", call.key)
    await asyncio.sleep(args.seconds)
    _tell(args.path, "-", call.key)
    return Done(pid=os.getpid())


def _tell(path: str, what: str, key: str | None) -> None:
    line = f"{what} {time.monotonic():.6f} {os.getpid()} {key}\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


agent = Agent("limited", "1.0.0", input=Job, state=Job, output=Done, initial=lambda job: job, tools=[file_it])


@agent.node(start=True)
async def work(state: Job, ctx: Context) -> End:
    """One call."""
    return End(await ctx.call(file_it, state))
