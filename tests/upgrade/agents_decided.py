"""The agent of the situations that dumps of before queues, limits and deputies know nothing of: it pays what
somebody has to approve, at a queue that an administrator made.

As in `agents.py` nothing here may change any more; the other side of the tool is the one from there.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from durableagents import Agent, Context, End, Gate, Sample, ToolCall, tool
from tests.upgrade.agents import KEYED, OUTSIDE, Item, Receipt

QUEUE, SHUT = "upgrade_money", "upgrade_shut"


class Bill(BaseModel):
    what: str
    amount: int = 1
    queue: str = QUEUE


class Work(BaseModel):
    bill: Bill
    paid: list[Any] = []


def _gate(queue: str) -> Gate:
    return Gate(queue, "whatever is paid", amount="amount USD")


@tool(replay_class=KEYED, gate=_gate(QUEUE), external_id="ref", timeout=5)
async def settle(args: Item, call: ToolCall) -> Receipt:
    """Pays a bill."""
    return OUTSIDE.take("settle", args, call)


@tool(replay_class=KEYED, gate=_gate(SHUT), external_id="ref", timeout=5)
async def settle_there(args: Item, call: ToolCall) -> Receipt:
    """Pays a bill once those of a queue agree that was closed since."""
    return OUTSIDE.take("settle_there", args, call)


def _work(bill: Bill) -> Work:
    return Work(bill=bill)


decided = Agent(
    "upgraded-decided", "1.0.0", input=Bill, state=Work, initial=_work, tools=[settle, settle_there],
    samples=[Sample(label="as it is", input={})],
)  # fmt: skip
AGENTS = (decided,)


@decided.node(start=True)
async def pay(work: Work, ctx: Context) -> End:
    """Starts another one for half of it where that is wished for, and pays."""
    bill = work.bill
    if bill.what == "shared":
        half = Bill(what="half", amount=bill.amount // 2)
        work.paid.append(await ctx.child(decided, half))
    by = settle_there if bill.queue == SHUT else settle
    work.paid.append((await ctx.call(by, Item(name=bill.what, amount=bill.amount))).ref)
    return End(work.paid)


for each in AGENTS:
    each.validate()
