"""The agent of the situations that dumps of before standing grants, documents, passkeys and policies on who started a
run know nothing of: each run makes one call, by the tool whose gate the situation is about.

As in `agents.py` nothing here may change any more, the documents' bytes included; the other side of the tools is the
one from there.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from durableagents import Agent, Context, Document, End, Gate, PolicyDenied, Rejected, Sample, ToolCall, tool
from tests.upgrade.agents import KEYED, OUTSIDE, Item, Receipt

AGAIN, SHOWN, VOUCHED, STRANGERS = (f"upgrade_{name}" for name in ("again", "shown", "vouched", "strangers"))
_OBJECTS = (
    b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
    b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
    b"<</Length 41>>stream\nBT /F 18 Tf 40 100 Td (Invoice 4711) Tj ET\nendstream",
    b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
)  # fmt: skip


def _pdf() -> bytes:
    """One page, with where each of its objects begins."""
    held, places = b"%PDF-1.4\n", []
    for n, each in enumerate(_OBJECTS, 1):
        places.append(b"%010d 00000 n \n" % len(held))
        held += b"%d 0 obj\n%s\nendobj\n" % (n, each)
    table = b"xref\n0 6\n0000000000 65535 f \n" + b"".join(places)
    return held + table + b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % len(held)


PAPERS = (
    Document("contract.txt", "text/plain", "Pay what the invoice says.\n"),
    Document("invoice.pdf", "application/pdf", _pdf()),
)


class Bill(BaseModel):
    by: str
    name: str
    amount: int = 500
    waits: bool = False
    child: bool = False


class Work(BaseModel):
    bill: Bill
    seen: list[Any] = []


def _tool(name: str, gate: Gate | None = None) -> Any:
    async def function(args: Item, call: ToolCall) -> Receipt:
        return OUTSIDE.take(name, args, call)

    function.__name__ = name
    return tool(replay_class=KEYED, external_id="ref", timeout=5, gate=gate)(function)


repay = _tool("repay", Gate(AGAIN, "whatever comes each month", amount="amount USD", same=["name"]))
sign = _tool("sign", Gate(SHOWN, "whatever has papers", amount="amount USD", editable=["amount"]))
vouch = _tool("vouch", Gate(VOUCHED, "whatever is signed for", amount="amount USD"))
vouch_by_two = _tool("vouch_by_two", Gate(VOUCHED, "whatever two sign for", amount="amount USD", quorum=2))
spend = _tool("spend")  # of which policies alone say whom they need
TOOLS = {each.name: each for each in (repay, sign, vouch, vouch_by_two, spend)}


def _work(bill: Bill) -> Work:
    return Work(bill=bill)


granted = Agent(
    "upgraded-granted", "1.0.0", input=Bill, state=Work, initial=_work, tools=list(TOOLS.values()),
    samples=[Sample(label="as it is", input={"by": "repay", "name": "it"})],
)  # fmt: skip
AGENTS = (granted,)


@granted.node(start=True)
async def pay(work: Work, ctx: Context) -> End:
    """Makes its call, or has another one make it."""
    bill = work.bill
    if bill.child:
        return End(await ctx.child(granted, bill.model_copy(update={"child": False})))
    if bill.waits:
        work.seen.append(await ctx.signal("go"))
    papers = PAPERS if bill.by == "sign" else ()
    try:
        done = await ctx.call(TOOLS[bill.by], Item(name=bill.name, amount=bill.amount), documents=papers)
    except PolicyDenied as no:
        return End([*work.seen, f"denied by {no.policy} {no.version}"])
    except Rejected as no:
        return End([*work.seen, f"no by {no.by}"])
    told = ctx.amendment(done)
    return End([*work.seen, done.ref if told is None else [done.ref, told.by, told.changes]])


for each in AGENTS:
    each.validate()
