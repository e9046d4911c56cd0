"""An agent for worker processes with a keyed and an unrepeatable tool. The shop is a file of effects; its folder's name
says how it treats keys.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from durableagents import Agent, Context, End, ReplayClass, ToolCall, tool


class Order(BaseModel):
    folder: str
    item: str


class Placed(BaseModel):
    number: str


class Told(BaseModel):
    number: str


def effect(folder: str, entry: dict[str, Any], *, once: bool) -> str:
    """Append an effect to the shop's book, unless its key is honoured and known; return the line's number."""
    with (Path(folder) / "effects.jsonl").open("a+") as book:
        fcntl.flock(book, fcntl.LOCK_EX)
        book.seek(0)
        lines = [json.loads(line) for line in book]
        known = [n for n, line in enumerate(lines) if line["key"] == entry["key"]]
        if once and known:
            return f"N-{known[0]}"
        book.write(json.dumps(entry) + "\n")
        book.flush()
        os.fsync(book.fileno())
        return f"N-{len(lines)}"


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, external_id="number", timeout=5)
async def place_order(args: Order, call: ToolCall) -> Placed:
    """Order it."""
    once = "forgets" not in Path(args.folder).name
    entry = {"tool": "place_order", "key": call.key, "args": args.model_dump()}
    return Placed(number=effect(args.folder, entry, once=once))


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, timeout=5)
async def tell_colleague(args: Order, call: ToolCall) -> Told:
    """Say that it was ordered."""
    entry = {"tool": "tell_colleague", "key": None, "run": call.run_id, "args": args.model_dump()}
    return Told(number=effect(args.folder, entry, once=False))


agent = Agent("shop", "1.0.0", input=Order, state=Order, tools=[place_order, tell_colleague])


@agent.node(start=True)
async def order(state: Order, ctx: Context) -> End:
    """Order, then tell."""
    placed = await ctx.call(place_order, state)
    call = await ctx.call(tell_colleague, state)
    return End([placed.number, call.number])


buyer = Agent("shop-buyer", "1.0.0", input=Order, state=Order, tools=[place_order])


@buyer.node(start=True)
async def buy(state: Order, ctx: Context) -> End:
    """Order, and have somebody else order too."""
    placed = await ctx.call(place_order, state)
    return End([placed.number, await ctx.child(agent, Order(folder=state.folder, item=f"{state.item} once more"))])
