"""The agents of the situations that dumps of before policies, stages, proofs, halts, deadlines and changed calls know
nothing of: each run makes one call, by the tool whose gate the situation is about.

As in `agents.py` nothing here may change any more; the other side of the tools is the one from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from durableagents import (
    Agent,
    Context,
    End,
    Expired,
    Gate,
    PolicyDenied,
    Rejected,
    Sample,
    Stage,
    ToolCall,
    WorkingHours,
    tool,
)
from tests.upgrade.agents import KEYED, OUTSIDE, Item, Receipt

LAW, MONEY, BOARD, PROOF = "upgrade_law", "upgrade_cash", "upgrade_board", "upgrade_proof"
TIMED, LATE, EVER, DESERTED, REST = (f"upgrade_{name}" for name in ("timed", "late", "ever", "deserted", "rest"))
SOON = timedelta(milliseconds=1)


class Bill(BaseModel):
    by: str
    name: str
    amount: int = 5000
    waits: str = ""


class Work(BaseModel):
    bill: Bill
    seen: list[Any] = []


def _tool(name: str, gate: Gate | None = None) -> Any:
    async def function(args: Item, call: ToolCall) -> Receipt:
        return OUTSIDE.take(name, args, call)

    function.__name__ = name
    return tool(replay_class=KEYED, external_id="ref", timeout=5, gate=gate)(function)


buy, forward = _tool("buy"), _tool("forward")  # of which policies alone say whom they need
agree = _tool("agree", Gate(LAW, "large sums", quorum=2, then=[Stage(MONEY, 2)]))
prove = _tool("prove", Gate(PROOF, "large sums", amount="amount USD"))
plan = _tool("plan", Gate(TIMED, "whatever is planned", within=WorkingHours(8)))
climb = _tool("climb", Gate(LATE, "whatever is urgent", within=SOON))
stay = _tool("stay", Gate(EVER, "whatever has time", within=SOON))
lapse = _tool("lapse", Gate(MONEY, "whatever is over", within=SOON))
leave = _tool("leave", Gate(DESERTED, "where nobody is"))
stand_in = _tool("stand_in", Gate(REST, "where a deputy is"))
correct = _tool("correct", Gate(MONEY, "any refund", amount="amount USD", editable=["amount"]))
stop = _tool("stop", Gate(LAW, "whatever is halted"))
TOOLS = {
    each.name: each for each in (buy, forward, agree, prove, plan, climb, stay, lapse, leave, stand_in, correct, stop)
}  # fmt: skip


def _work(bill: Bill) -> Work:
    return Work(bill=bill)


def _agent(name: str, tools: Sequence[Any]) -> Agent:
    return Agent(
        name, "1.0.0", input=Bill, state=Work, initial=_work, tools=tools,
        samples=[Sample(label="as it is", input={"by": tools[-1].name, "name": "it"})],
    )  # fmt: skip


overseen = _agent("upgraded-overseen", list(TOOLS.values()))
halted = _agent("upgraded-halted", [stop])
AGENTS = (overseen, halted)


@overseen.node(start=True)
async def pay(work: Work, ctx: Context) -> End:
    """Makes its call, and waits before or after it where that is wished for."""
    bill = work.bill
    if bill.waits == "before":
        work.seen.append(await ctx.signal("go"))
    try:
        done = await ctx.call(TOOLS[bill.by], Item(name=bill.name, amount=bill.amount))
    except Expired:
        return End([*work.seen, "nobody answered"])
    except Rejected as no:
        return End([*work.seen, f"no by {no.by}"])
    except PolicyDenied as no:
        return End([*work.seen, f"denied by {no.policy} {no.version}"])
    told = ctx.amendment(done)
    work.seen.append(done.ref if told is None else [done.ref, told.by, told.changes])
    if bill.waits == "after":
        work.seen.append(await ctx.signal("go"))
    return End(work.seen)


@halted.node(start=True)
async def pay_once_it_is_lifted(work: Work, ctx: Context) -> End:
    """Makes its call."""
    return End([(await ctx.call(stop, Item(name=work.bill.name, amount=work.bill.amount))).ref])


for each in AGENTS:
    each.validate()
