"""The agents of the situations that the first dumps know nothing of: budgets, children, messages, attributes, short
conversations, runs that go on as others, pools, limits, hooks, cached reads, keys and schedules.

As in `agents.py` nothing here may change any more; the other side of the tools is the one from there.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, ToolCallPart

from durableagents import (
    Agent,
    Assistant,
    ContentRefused,
    Context,
    End,
    Handoff,
    Keyword,
    Keywords,
    Number,
    Piece,
    Redact,
    Refused,
    Renew,
    ReplayClass,
    Sample,
    ToolCall,
    Withhold,
    screen,
    tool,
)
from tests.upgrade.agents import KEYED, OUTSIDE, Item, Receipt, Wish, look, order, pay

TURNS, HALF = 9, 5
WINDOW = 1400


@tool(replay_class=KEYED, external_id="ref", timeout=5)
async def send(args: Item, call: ToolCall) -> Receipt:
    """Of its own name, so that a limit of it holds nobody else."""
    return OUTSIDE.take("send", args, call)


@tool(replay_class=ReplayClass.PURE, cache=timedelta(hours=1))
async def peek(args: Item, call: ToolCall) -> Receipt:
    """What one run has read, another one is given."""
    return OUTSIDE.take("look", args, call)


@screen(version="1", source=["node"], to=["tool"])
def guard(piece: Piece) -> Withhold | Redact | None:
    name = piece.content["name"]
    if "poison" in name:
        return Withhold("poison")
    return Redact(piece.content | {"name": name.replace("dirty", "clean")}, "cleaned") if "dirty" in name else None


def _reads_on(messages: list[Any], info: Any) -> ModelResponse:
    """One item after the other, by what it is shown of those before; half-way it pays, once people agree."""
    shown = " ".join(str([getattr(p, "content", ""), getattr(p, "args", "")]) for m in messages for p in m.parts)
    item = max(map(int, re.findall(r"item ([0-9]+)", shown)), default=0) + 1
    if item > TURNS:
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "all read"}, tool_call_id="last")])
    name, amount = ("pay", 2000) if item == HALF else ("look", 1)
    given = {"name": f"item {item} {'x' * 450}", "amount": amount}
    return ModelResponse(parts=[ToolCallPart(name, given, tool_call_id=f"item-{item}")])


def _concludes(messages: list[Any], info: Any) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "concluded"}, tool_call_id="only")])


reader = Assistant(
    name="reader", instructions="Read it all.", output=Receipt, tools=[look, pay], offline=_reads_on,
    max_turns=TURNS + 15, window=WINDOW,
)  # fmt: skip
thinker = Assistant(name="thinker", instructions="Conclude.", output=Receipt, offline=_concludes)


class Work(BaseModel):
    what: str
    turn: int = 0
    seen: list[Any] = []


class Told(BaseModel):
    what: str
    turn: int
    seen: list[Any]


FOUND_BY = {"customer": Keyword(), "stages": Keywords(), "score": Number()}
helper = Agent(
    "upgraded-helper", "1.0.0", input=Wish, state=Work, output=Receipt, initial=lambda wish: Work(what=wish.what),
    tools=[order], assistants=[thinker], attributes=FOUND_BY, samples=[Sample(label="as it is", input={})],
)  # fmt: skip
agent = Agent(
    "upgraded-later", "1.0.0", input=Wish, state=Work, output=Told, initial=lambda wish: Work(what=wish.what),
    tools=[look, order, pay, send, peek], assistants=[reader, thinker], attributes=FOUND_BY,
    samples=[Sample(label="as it is", input={})],
)  # fmt: skip
guarded = Agent(
    "upgraded-guarded", "1.0.0", input=Wish, state=Work, initial=lambda wish: Work(what=wish.what), tools=[order],
    screens=[guard], samples=[Sample(label="as it is", input={})],
)  # fmt: skip
AGENTS = (helper, agent, guarded)


@helper.node(start=True)
async def help_out(work: Work, ctx: Context) -> End:
    """What others are started for, or hand on to."""
    await ctx.call(order, Item(name=f"help {work.what}"))
    if work.what == "handed":
        await ctx.think(thinker, "Conclude it.", after=await ctx.handed_over())
    if work.what != "quick":
        await ctx.signal("go")
    await ctx.call(order, Item(name=f"helped {work.what}"))
    return End(Receipt(ref=f"helped {work.what}"))


@guarded.node(start=True)
async def screened(work: Work, ctx: Context) -> End:
    """A hook refuses one call and changes the next."""
    try:
        await ctx.call(order, Item(name="poison"))
    except ContentRefused as no:
        work.seen.append(no.reason)
    work.seen.append((await ctx.call(order, Item(name="dirty"))).ref)
    return End([*work.seen, await ctx.signal("go"), (await ctx.call(order, Item(name="dirty too"))).ref])


@agent.node(start=True, to=["last"])
async def begin(work: Work, ctx: Context) -> Any:
    """The visit that is cut in the middle: what comes before is answered from the record."""
    await ctx.call(order, Item(name=f"first {work.what} {work.turn}"))
    match work.what:
        case "renew" if work.turn < 2:
            if work.turn:
                work.seen.append(await ctx.signal("go"))
            return Renew(Work(what="renew", turn=work.turn + 1, seen=work.seen))
        case "handoff":
            await ctx.think(thinker, "Conclude it.")
            return Handoff(helper, Wish(what="handed"), transcript=ctx.transcript())
    found = await _wished(work.what, ctx)
    work.seen.append(found)  # not in one line: a message that came meanwhile has put another list there
    return "last"


@agent.node()
async def last(work: Work, ctx: Context) -> End:
    await ctx.call(order, Item(name=f"last {work.what}"))
    return End(Told(what=work.what, turn=work.turn, seen=work.seen))


async def _wished(what: str, ctx: Context) -> Any:
    match what:
        case "signal":
            return await ctx.signal("go")
        case "child" | "quick":
            return (await ctx.child(helper, Wish(what=what), attributes={"customer": "a parent's"})).ref
        case "children":
            kin = (ctx.child(helper, Wish(what=each)) for each in ("child", "quick"))
            return [each.ref for each in await ctx.gather(*kin)]
        case "message":
            taken = await ctx.message("note")
            return [taken.name, taken.n, taken.answer]
        case "read":
            return (await ctx.think(reader, "Go through all.")).ref
        case "call":
            return (await ctx.call(order, Item(name="one more"))).ref
        case "send":
            return (await ctx.call(send, Item(name="parcel"))).ref
        case "peek":
            found = (await ctx.call(peek, Item(name="rates"))).ref
            return [found, (await ctx.call(order, Item(name="by rates"))).ref, await ctx.signal("go")]
        case "attributes":
            await ctx.set_attributes(customer="ours", stages=["begun"])
            found = await ctx.signal("go")
            await ctx.set_attributes(customer=None, stages=["begun", "done"])
            return found
    return "nothing"


@agent.message(takes=Item, answers=Receipt)
def note(work: Work, request: Item) -> Receipt:
    """Noted, unless it is none."""
    work.seen.append(request.name)
    if request.name == "none":
        raise Refused("there is none", code="no_note")
    return Receipt(ref=f"noted {request.name}")


for each in AGENTS:
    each.validate()
