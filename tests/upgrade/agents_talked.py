"""The agent of the situations that dumps of before inquiries, delegations, claims and reasons know nothing of: each run
makes one call, by the tool whose gate the situation is about.

As in `agents.py` nothing here may change any more; the other side of the tools is the one from there.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from durableagents import Agent, Context, End, Gate, Rejected, Sample, ToolCall, tool
from tests.upgrade.agents import KEYED, OUTSIDE, Item, Receipt

TALK, TALKED_OVER = "upgrade_talk", "upgrade_talked_over"


class Bill(BaseModel):
    name: str
    by: str = "pay_after_talk"
    amount: int = 500


class Work(BaseModel):
    bill: Bill
    seen: list[Any] = []


@tool(
    replay_class=KEYED, external_id="ref", timeout=5,
    gate=Gate(TALK, "whatever is talked about", amount="amount USD", editable=["amount"]),
)  # fmt: skip
async def pay_after_talk(args: Item, call: ToolCall) -> Receipt:
    """Pays once somebody says yes, who may ask others first."""
    return OUTSIDE.take("pay_after_talk", args, call)


@tool(replay_class=KEYED, external_id="ref", timeout=5, gate=Gate(TALKED_OVER, "what two agree on", quorum=2))
async def pay_by_two(args: Item, call: ToolCall) -> Receipt:
    """Pays once two say yes."""
    return OUTSIDE.take("pay_by_two", args, call)


TOOLS = {each.name: each for each in (pay_after_talk, pay_by_two)}


def _work(bill: Bill) -> Work:
    return Work(bill=bill)


talked = Agent(
    "upgraded-talked", "1.0.0", input=Bill, state=Work, initial=_work, tools=list(TOOLS.values()),
    samples=[Sample(label="as it is", input={"name": "it"})],
)  # fmt: skip
AGENTS = (talked,)


@talked.node(start=True)
async def pay(work: Work, ctx: Context) -> End:
    """Makes its call."""
    bill = work.bill
    try:
        work.seen.append((await ctx.call(TOOLS[bill.by], Item(name=bill.name, amount=bill.amount))).ref)
    except Rejected as no:
        return End([*work.seen, f"no by {no.by}"])
    return End(work.seen)


for each in AGENTS:
    each.validate()
