"""The agents of the situations that dumps of before undo and releases know nothing of: effects that can be undone, two
versions beside each other, a tool whose other side ignores keys.

As in `agents.py` nothing here may change any more; the other side of the tools is the one from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from durableagents import Agent, Context, End, Failure, Gate, Pending, ReplayClass, Sample, ToolCall, Undo, tool
from tests.upgrade.agents import KEYED, OUTSIDE, UNSAFE, Item, Receipt, Wish


def _plain(name: str, replay_class: ReplayClass, **more: Any) -> Any:
    async def function(args: Item, call: ToolCall) -> Receipt:
        return OUTSIDE.take(name, args, call)

    function.__name__ = name
    return tool(replay_class=replay_class, timeout=5, **more)(function)


def _later(name: str, **more: Any) -> Any:
    async def function(args: Item, call: ToolCall) -> Pending:
        assert call.callback_url is not None
        OUTSIDE.urls[call.run_id] = call.callback_url
        return Pending(receipt={"ref": OUTSIDE.take(name, args, call).ref})

    function.__name__ = name
    return tool(replay_class=KEYED, answers_later=True, output=Receipt, timeout=5, **more)(function)


def _back(asked: Item, got: Receipt) -> dict[str, Any]:
    return {"name": f"{asked.name} ({got.ref})", "amount": asked.amount}


ASKED = Gate("finance_po", "always")
unbook = _plain("unbook", KEYED, external_id="ref")
refund = _plain("refund", KEYED, gate=ASKED)
recall = _plain("recall", UNSAFE, gate=ASKED)
unfile = _later("unfile")
book = _plain("book", KEYED, external_id="ref", undo=Undo(unbook, _back))
charge = _plain("charge", KEYED, undo=Undo(refund, _back))
write = _plain("write", UNSAFE, undo=Undo(recall, _back))
file = _later("file", undo=Undo(unfile, _back))
tell = _plain("tell", KEYED)


@tool(replay_class=KEYED, external_id="ref", timeout=5)
async def careless(args: Item, call: ToolCall) -> Receipt:
    """Its other side ignores keys."""
    OUTSIDE.take("careless", args, replace(call, key=None))
    return Receipt(ref=f"careless:{len(OUTSIDE.effects)}")


class Work(BaseModel):
    what: str
    seen: list[Any] = []


def _work(wish: Wish) -> Work:
    return Work(what=wish.what)


DONE = [book, charge, write, file, tell]
undoer = Agent(
    "upgraded-undoing", "1.0.0", input=Wish, state=Work, initial=_work,
    tools=[*DONE, unbook, refund, recall, unfile], samples=[Sample(label="as it is", input={})],
)  # fmt: skip
released = Agent(
    "upgraded-released", "1.0.0", input=Wish, state=Work, initial=_work, tools=[tell, careless],
    samples=[Sample(label="as it is", input={})],
)  # fmt: skip
released_2 = Agent(
    "upgraded-released", "2.0.0", input=Wish, state=Work, initial=_work, tools=[tell, careless],
    samples=[Sample(label="as it is", input={})],
)  # fmt: skip
released_3 = Agent(
    "upgraded-released", "3.0.0", input=Wish, state=Work, initial=_work, tools=[tell],
    samples=[Sample(label="as it is", input={})],
)  # fmt: skip
AGENTS = (undoer, released, released_2, released_3)


@undoer.node(start=True, to=["last"])
async def begin(work: Work, ctx: Context) -> Any:
    """A visit that is over when the effects of the next one are undone with its own."""
    work.seen.append((await ctx.call(book, Item(name=f"first {work.what}"))).ref)
    await ctx.call(tell, Item(name=f"all of {work.what}"))
    return "last"


@undoer.node()
async def last(work: Work, ctx: Context) -> End:
    """Makes what is wished for, waits, and fails unless it is to end well."""
    match work.what:
        case "charge" | "paused":
            await ctx.call(charge, Item(name="a fee"))
        case "write":
            await ctx.call(write, Item(name="a letter"))
        case "file":
            await ctx.call(file, Item(name="a form"))
        case "parent":
            await ctx.call(charge, Item(name="of the parent"))
            await ctx.child(undoer, Wish(what="child"))
    if work.what in ("well", "wait", "child"):
        work.seen.append(await ctx.signal("go"))
    if work.what != "well":
        raise Failure("so that it is undone", code="undone")
    await ctx.call(tell, Item(name="all is well"))
    return End(work.seen)


async def _released(work: Work, ctx: Context, version: str) -> End:
    if work.what == "careless":
        await ctx.call(careless, Item(name="a parcel"))
    await ctx.call(tell, Item(name=f"before {version}"))
    work.seen.append(await ctx.signal("go"))
    await ctx.call(tell, Item(name=f"after {version}"))
    return End([version, *work.seen])


@released.node(start=True)
async def release_1(work: Work, ctx: Context) -> End:
    """What the older version does."""
    return await _released(work, ctx, "1.0.0")


@released_2.node(start=True)
async def release_2(work: Work, ctx: Context) -> End:
    """What the newer one does."""
    return await _released(work, ctx, "2.0.0")


@released_3.node(start=True)
async def release_3(work: Work, ctx: Context) -> End:
    """What one does that was closed again."""
    return await _released(work, ctx, "3.0.0")


for each in AGENTS:
    each.validate()
