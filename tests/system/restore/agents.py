"""An agent that charges twice, with a pause between, by a tool that nobody deduplicates."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel

from durableagents import Agent, Context, End, ReplayClass, ToolCall, tool

CHARGES = "charges.txt"


class Order(BaseModel):
    """The charges, and how long after the start the second one is due."""

    name: str
    pause_seconds: float


class Charged(BaseModel):
    times: int


def charges(data: Path) -> Path:
    return data.parent / CHARGES


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, title="Charge the customer")
async def charge_customer(args: Order, call: ToolCall) -> Charged:
    """Write a line where no backup reaches."""
    file = charges(Path(os.environ["DURABLEAGENTS_DATA"]))
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{args.name}\n")
    return Charged(times=1)


agent = Agent("restore-charge", "1.0.0", input=Order, state=Order, output=Charged, tools=[charge_customer])


@agent.node(start=True, to=["charge"], title="Wait")
async def pause(state: Order, ctx: Context) -> str:
    """Wait for the time to charge."""
    await ctx.sleep(state.pause_seconds)
    return "charge"


@agent.node(title="Charge")
async def charge(state: Order, ctx: Context) -> End:
    """Charge once."""
    return End(await ctx.call(charge_customer, state))
