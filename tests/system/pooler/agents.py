"""The runs behind a pooler: a gate, a callback, a timer, and a slow order to be killed in."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from pydantic import BaseModel

from durableagents import Agent, Context, End, Gate, Pending, ReplayClass, ToolCall, tool


class Order(BaseModel):
    what: str = "desk"
    amount: int = 1


class Filed(BaseModel):
    ref: str


def _note(**told: object) -> None:
    place = Path(os.environ["POOLER_STORY"]) / "seen.jsonl"
    with place.open("a") as file:
        file.write(json.dumps(told) + "\n")


def _is_dear(order: Order) -> bool:
    return order.amount >= 1000


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, gate=Gate("finance_po", "from 1000 on", when=_is_dear), timeout=60)
async def file_order(order: Order, call: ToolCall) -> Filed:
    _note(tool="file_order", run=call.run_id, key=call.key, pid=os.getpid())
    while order.what == "slow" and not (Path(os.environ["POOLER_STORY"]) / "go").exists():  # noqa: ASYNC110  opened from outside
        await asyncio.sleep(0.02)
    return Filed(ref=f"filed {order.what}")


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Filed)
async def ask_for_form(order: Order, call: ToolCall) -> Pending:
    """Answers by callback."""
    _note(tool="ask_for_form", run=call.run_id, key=call.key, url=call.callback_url)
    return Pending(receipt={"taken": True})


agent = Agent("pooled", "1.0.0", input=Order, state=Order, tools=[file_order, ask_for_form])


@agent.node(start=True)
async def go(order: Order, ctx: Context) -> End:
    if order.what == "timer":
        await ctx.sleep(seconds=1)
        return End({"ref": "slept"})
    tool = ask_for_form if order.what == "form" else file_order
    return End({"ref": (await ctx.call(tool, order)).ref})


agent.validate()
