"""A refund desk with one of each kind of step, using only what integrators may import."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, Field

from durableagents import (
    Agent,
    Assistant,
    Context,
    End,
    Failure,
    Gate,
    Handoff,
    Pending,
    Refused,
    Rejected,
    Renew,
    ReplayClass,
    ToolCall,
    ToolFailure,
    tool,
)


class Order(BaseModel):
    order_id: str


class Paid(BaseModel):
    customer: str
    usd: int


class Refund(BaseModel):
    order_id: str
    usd: int


class Refunded(BaseModel):
    refund_id: str


class Letter(BaseModel):
    to: str
    text: str


class Posted(BaseModel):
    tracking: str = "none"


class Address(BaseModel):
    street: str = Field(min_length=3)


class Advice(BaseModel):
    usd: int


class Wish(BaseModel):
    order_id: str = "A-1"
    what: str = "plain"


class Case(BaseModel):
    order_id: str
    what: str
    notes: list[Any] = []


@tool(replay_class=ReplayClass.PURE)
async def look_up(args: Order, call: ToolCall) -> Paid:
    return Paid(customer="Ada", usd=250 if args.order_id == "A-1" else 12_000)


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    gate=Gate("finance_po", "from 10000 on", when=lambda refund: refund.usd >= 10_000),
    external_id="refund_id",
)
async def refund(args: Refund, call: ToolCall) -> Refunded:
    return Refunded(refund_id=f"R-{args.order_id}")


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY)
def post(args: Letter, call: ToolCall) -> Posted:
    return Posted(tracking="T-1")


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Refunded)
async def transfer(args: Refund, call: ToolCall) -> Pending:
    return Pending(receipt={"taken": True}, within=timedelta(days=2))


clerk = Assistant(name="clerk", instructions="Say how much.", output=Advice, tools=[look_up, refund])

desk = Agent(
    "returns",
    "1.0.0",
    input=Wish,
    state=Case,
    tools=[look_up, refund, post, transfer],
    assistants=[clerk],
    initial=lambda wish: Case(order_id=wish.order_id, what=wish.what),
    signals=["arrived"],
)
helper = Agent(
    "desk-helper",
    "1.0.0",
    input=Wish,
    state=Case,
    tools=[post, refund],
    initial=lambda wish: Case(order_id=wish.order_id, what=wish.what),
)


@desk.node(start=True, to=["close"])
async def begin(case: Case, ctx: Context) -> Any:
    case.notes.append((await ctx.call(look_up, Order(order_id=case.order_id))).usd)
    found = await _wished(case, ctx)
    if isinstance(found, (Renew, Handoff)):
        return found
    case.notes.append([each.model_dump() for each in found] if isinstance(found, list) else found)
    return "close"


@desk.node()
async def close(case: Case, ctx: Context) -> End:
    await ctx.call(post, Letter(to="Ada", text=f"done: {case.what}"))
    return End(case.notes)


async def _wished(case: Case, ctx: Context) -> Any:
    order = Refund(order_id=case.order_id, usd=case.notes[-1])
    match case.what:
        case "refund":
            try:
                return (await ctx.call(refund, order)).refund_id
            except Rejected as no:
                return f"no: {no.reason}"
            except ToolFailure as no:
                return no.code
        case "transfer":
            return (await ctx.call(transfer, order)).refund_id
        case "question":
            return (await ctx.ask("operator", title="Where to?", schema=Address)).street
        case "signal":
            return await ctx.signal("arrived", within=timedelta(days=1), or_else="nothing came")
        case "sleep":
            await ctx.sleep(3600)
            return (await ctx.now()).isoformat()
        case "values":
            return [str(await ctx.uuid()), await ctx.random()]
        case "think":
            return (await ctx.think(clerk, f"About {case.order_id}")).usd
        case "child":
            return await ctx.child(helper, Wish(order_id=case.order_id))
        case "both":
            return await ctx.gather(ctx.call(transfer, order), ctx.ask("operator", title="And?", schema=Address))
        case "renew":
            return Renew(Case(order_id=case.order_id, what="plain", notes=["renewed"]))
        case "handoff":
            return Handoff(helper, Wish(order_id=case.order_id))
        case "fail":
            raise Failure("no way")
        case "bug":
            return 1 / 0
    return "plain"


@helper.node(start=True)
async def help_out(case: Case, ctx: Context) -> End:
    paid = await ctx.call(refund, Refund(order_id=case.order_id, usd=12_000))
    return End({"helped": paid.refund_id})


@desk.message(takes=Order, answers=Advice)
def note(case: Case, request: Order) -> Advice:
    if request.order_id == "none":
        raise Refused("there is none", code="no_order")
    case.notes.append(request.order_id)
    return Advice(usd=len(case.notes))


for each in (desk, helper):
    each.validate()
