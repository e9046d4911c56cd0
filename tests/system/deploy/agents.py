"""An agent whose effects are lines in a file of both hosts: an upstream system that the cut doesn't concern."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from pydantic import BaseModel

from durableagents import Agent, Context, End, ReplayClass, ToolCall, tool


class Trip(BaseModel):
    """Number of pairs of effects that a run is to have."""

    pairs: int
    done: int = 0


class Effect(BaseModel):
    name: str


def _note(kind: str, name: str, key: str | None) -> None:
    with Path(os.environ["EFFECTS_FILE"]).open("a", encoding="utf-8") as file:
        file.write(f"{kind} {name} {key} {socket.gethostname()}\n")


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, title="Send", timeout=60)
async def send(args: Effect, call: ToolCall) -> Effect:
    """An effect that nobody deduplicates. It happens at once, and is answered later."""
    _note("unsafe", args.name, "-")
    await asyncio.sleep(2)
    return args


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, title="Book", timeout=60)
async def book(args: Effect, call: ToolCall) -> Effect:
    """An effect that the other side deduplicates by key."""
    _note("keyed", args.name, call.key)
    await asyncio.sleep(1)
    return args


agent = Agent("traveller", "1.0.0", input=Trip, state=Trip, output=Trip, tools=[send, book])


@agent.node(start=True, to=("travel",), title="Travel")
async def travel(state: Trip, ctx: Context) -> End | str:
    """One pair of effects a visit."""
    name = f"{ctx.run_id}/{state.done}"
    await ctx.call(send, Effect(name=name))
    await ctx.call(book, Effect(name=name))
    state.done += 1
    return End(state) if state.done == state.pairs else "travel"
