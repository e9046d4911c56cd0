"""The agent of the situations that dumps of before know nothing of: what is handed to a run, two who settle, acts on
many, and clocks that are given back. Where its input names what it does, its item has the situation's name.

As in `agents.py` nothing here may change any more; the other side of the tools is the one from there.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, ToolCallPart, UserPromptPart

from durableagents import (
    Agent,
    Assistant,
    Context,
    End,
    Failure,
    Gate,
    Happened,
    Sample,
    ToolCall,
    Undo,
    WorkingHours,
    tool,
)
from tests.upgrade.agents import KEYED, OUTSIDE, UNSAFE, Item, Receipt

OFFICE = "upgrade_office"
# Of which letters the other side tells that they came.
TOLD_OF: set[str] = set()
# Whose node breaks when it is looked at again, as of a deployment gone wrong.
BROKEN: set[str] = set()


class Wish(BaseModel):
    what: str
    name: str


class Deal(BaseModel):
    wish: Wish
    note: str = "nothing"
    seen: list[Any] = []


def _plain(name: str, **more: Any) -> Any:
    async def function(args: Item, call: ToolCall) -> Receipt:
        return OUTSIDE.take(name, args, call)

    function.__name__ = name
    return tool(**{"replay_class": KEYED, "external_id": "ref", "timeout": 5, **more})(function)


async def _ask(args: Item, call: ToolCall) -> Happened | None:
    return Happened(Receipt(ref=f"post:{args.name}")) if args.name in TOLD_OF else None


def _back(asked: Item, got: Receipt) -> dict[str, Any]:
    return {"name": f"{asked.name} ({got.ref})", "amount": asked.amount}


deliver = _plain("deliver")
clear = _plain("clear", gate=Gate(OFFICE, "whatever is cleared", within=WorkingHours(8)))
post = _plain("post", replay_class=UNSAFE, external_id=None, reconcile=_ask)
free = _plain("free")
reserve = _plain("reserve", undo=Undo(free, _back))


def _offline(messages: list[Any], info: Any) -> ModelResponse:
    """Has it cleared, and says how often people have told it something."""
    turn = sum(isinstance(each, ModelResponse) for each in messages)
    said = [str(part.content) for each in messages for part in each.parts if isinstance(part, UserPromptPart)]
    ends = ("final_result", {"ref": f"told {sum(text.startswith('From a person') for text in said)} times"})
    return ModelResponse([ToolCallPart(*(("clear", {"name": "thought"}), ends)[min(turn, 1)], f"turn-{turn}")])


mind = Assistant(name="mind", instructions="Buy it.", output=Receipt, tools=[clear], offline=_offline)
steered = Agent(
    "upgraded-steered", "1.0.0", input=Wish, state=Deal, initial=lambda wish: Deal(wish=wish),
    tools=[deliver, clear, post, reserve, free], assistants=[mind],
    samples=[Sample(label="as it is", input={"what": "deliver", "name": "it"})],
)  # fmt: skip
AGENTS = (steered,)


@steered.node(start=True)
async def work(deal: Deal, ctx: Context) -> End:
    """Does what it was started to do, and says with what note."""
    item = Item(name=deal.wish.name)
    match deal.wish.what:
        case "wait":
            deal.seen.append(await ctx.signal("go"))
        case "think":
            deal.seen.append((await ctx.think(mind, "Buy it.")).ref)
        case "post":
            deal.seen.append((await ctx.call(post, item)).ref)
        case "clear":
            deal.seen.append((await ctx.call(clear, item)).ref)
        case "break":
            if item.name in BROKEN:
                raise Failure("a deployment gone wrong", code="broken")
            deal.seen.append((await ctx.call(clear, item)).ref)
        case "reserve" | "undo":
            deal.seen.append((await ctx.call(reserve, item)).ref)
    if deal.wish.what in ("deliver", "note", "reserve"):
        deal.seen.append((await ctx.call(deliver, item)).ref)
    if deal.wish.what == "undo" or (deal.wish.what == "note" and deal.note == "nothing"):
        raise Failure("not without a note", code="no_note")
    return End([deal.note, *deal.seen])


for each in AGENTS:
    each.validate()
