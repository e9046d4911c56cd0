"""The agent of the runs in the dump. Released code made them and today's code continues them, so it never changes.

It imports what integrators may import and nothing else.
"""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from durableagents import Agent, BusinessFailure, Context, End, Gate, ReplayClass, ToolCall, TransportError, tool


class Item(BaseModel):
    name: str


class Receipt(BaseModel):
    ref: str


class Wish(BaseModel):
    what: str


#: The effects outside, in order: the tool and the item.
EFFECTS: list[tuple[str, str]] = []


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY)
async def order(args: Item, call: ToolCall) -> Receipt:
    """Orders an item; `nothing` is refused."""
    if args.name == "nothing":
        raise BusinessFailure("out of stock", code="out_of_stock")
    EFFECTS.append(("order", args.name))
    return Receipt(ref=f"order:{args.name}")


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, gate=Gate("finance_po", "always", within=timedelta(days=36_500)))
async def pay(args: Item, call: ToolCall) -> Receipt:
    """Pays for an item once finance has approved it."""
    EFFECTS.append(("pay", args.name))
    return Receipt(ref=f"pay:{args.name}")


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY)
async def mail(args: Item, call: ToolCall) -> Receipt:
    """Sends a letter; the answer to it is lost."""
    EFFECTS.append(("mail", args.name))
    raise TransportError("connection reset")


agent = Agent("upgraded", "1.0.0", input=Wish, state=Wish, tools=[order, pay, mail])


@agent.node(start=True)
async def buy(wish: Wish, ctx: Context) -> End:
    first = await ctx.call(order, Item(name=wish.what))
    if wish.what == "paid":
        await ctx.call(pay, Item(name=wish.what))
    if wish.what == "mailed":
        await ctx.call(mail, Item(name=wish.what))
    return End(first.ref)
