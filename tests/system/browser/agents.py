"""An agent whose every word is an attack on the page that shows it: input, model, tool, evidence, error."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from urllib.request import Request, urlopen

from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from durableagents import (
    Agent,
    Assistant,
    BusinessFailure,
    Context,
    End,
    Evidence,
    Expired,
    Gate,
    Rejected,
    ReplayClass,
    Sample,
    Stage,
    ToolCall,
    ToolFailure,
    TransportError,
    WorkingHours,
    tool,
)
from tests.papers import broken_pdf, pdf, png, text

ATTACK = (
    "</textarea></pre></script><script>window.pwned=1</script><img src=//attack.invalid/x onerror=window.pwned=2>"
    "<svg onload=window.pwned=3><style>*{display:none}</style><form "
    "action=//attack.invalid><button>Approve</button></form>"
    "{{ 7|add:7 }}{% now 'Y' %} javascript:window.pwned=4 \u202eevorppa\u202c \u200b N\u043erdlicht \U000e0041 "
)


class Said(BaseModel):
    text: str = ATTACK
    fails: bool = False


class State(BaseModel):
    said: Said


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Do it",
    system="nowhere",
    effect=f"Does it. {ATTACK}",
    external_id="text",
    gate=Gate("finance_po", f"Always. {ATTACK}", headline=lambda args: args.text),
)
async def do_it(args: Said, call: ToolCall) -> Said:
    """Does it."""
    return Said(text=ATTACK)


@tool(replay_class=ReplayClass.PURE, title="Read it")
async def read_it(args: Said, call: ToolCall) -> Said:
    """Refuses with the attack."""
    raise BusinessFailure(ATTACK, code="attack", details={ATTACK: ATTACK})


async def _say(messages: list[Any], info: Any) -> ModelResponse:
    return ModelResponse(parts=[TextPart(ATTACK), ToolCallPart("final_result", {"text": ATTACK})])


voice = Assistant(name="voice", instructions=ATTACK, output=Said, offline=_say)
hostile = Agent(
    "zz-hostile",
    "1.0.0",
    input=Said,
    state=State,
    output=Said,
    initial=lambda said: State(said=said),
    title=f"Hostile {ATTACK}",
    description=ATTACK,
    samples=[Sample(label=ATTACK, input={"text": ATTACK})],
    tools=[do_it, read_it],
    assistants=[voice],
)


@hostile.node(start=True, title=ATTACK)
async def speak(state: State, ctx: Context) -> End:
    await ctx.think(voice, ATTACK)
    try:
        await ctx.call(read_it, Said())
    except ToolFailure:
        pass
    if state.said.fails:
        raise RuntimeError(ATTACK)
    return End(await ctx.call(do_it, Said(), evidence=[Evidence(ATTACK, ATTACK, {ATTACK: [ATTACK]})], why=ATTACK))


hostile.validate()


# --- an agent whose letters get lost, and which asks about many things at once --------------------


class Order(BaseModel):
    legal_name: str = "Volga Heavy Industries"
    ending: str = ""
    items: int = 3


class Letter(BaseModel):
    legal_name: str


class Many(BaseModel):
    values: dict[str, str]


class Sent(BaseModel):
    ref: str = "R-1"


class OrderState(BaseModel):
    order: Order


async def _looks(args: Letter, call: ToolCall) -> None:
    """The post knows of no letters."""


@tool(
    replay_class=ReplayClass.UNSAFE_ON_REPLAY,
    title="Send a letter",
    system="post",
    reconcile=_looks,
    link=lambda args: f"https://post.example/letters?to={quote(args.legal_name)}",
)
async def send_letter(args: Letter, call: ToolCall) -> Sent:
    """Nobody knows whether it left."""
    raise TransportError("the line went dead")


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Buy many things",
    system="shop",
    effect="Spends money.",
    gate=Gate("finance_po", "Always", headline=lambda args: f"${len(args.values)}.00"),
)
async def buy_many(args: Many, call: ToolCall) -> Sent:
    """Buys."""
    return Sent()


clerk = Agent(
    "zz-clerk",
    "1.0.0",
    input=Order,
    state=OrderState,
    output=Sent,
    initial=lambda order: OrderState(order=order),
    title="Clerk",
    tools=[send_letter, buy_many],
)


@clerk.node(start=True, title="Work")
async def work(state: OrderState, ctx: Context) -> End:
    if state.order.ending == "unknown":
        return End(await ctx.call(send_letter, Letter(legal_name=state.order.legal_name)))
    if state.order.ending == "asks":
        await ctx.approve(
            "finance_po",
            title=f"Take on {state.order.legal_name} at once",
            body={"vendor": state.order.legal_name},
            headline=state.order.legal_name,
        )
        return End(Sent())
    return End(await ctx.call(buy_many, Many(values={f"value_{n}": f"{n} pieces" for n in range(state.order.items)})))


clerk.validate()


# --- an agent that buys one thing, of which whoever approves may change how much and when --------


class Purchase(BaseModel):
    item: str = "chairs"
    amount_usd: int = 84_000
    needed_by: str = "2027-01-31"


class PurchaseState(BaseModel):
    purchase: Purchase


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Buy it",
    system="shop",
    effect="Spends money.",
    gate=Gate(
        "finance_po",
        "Always",
        headline=lambda args: f"${args.amount_usd:,}.00",
        amount="amount_usd USD",
        editable=["amount_usd", "needed_by"],
        same=["item"],
    ),
)
async def buy_it(args: Purchase, call: ToolCall) -> Purchase:
    """Buys, and gives what was bought."""
    return args


buyer = Agent(
    "zz-buyer",
    "1.0.0",
    input=Purchase,
    state=PurchaseState,
    output=Purchase,
    initial=lambda purchase: PurchaseState(purchase=purchase),
    title="Buyer",
    tools=[buy_it],
)


@buyer.node(start=True, title="Buy")
async def buy(state: PurchaseState, ctx: Context) -> End:
    return End(await ctx.call(buy_it, state.purchase))


buyer.validate()


# --- an agent that has papers signed, and comes with others after a no ----------------------------


class Deal(BaseModel):
    name: str = "Nordlicht"
    is_broken: bool = False


class DealState(BaseModel):
    deal: Deal
    revision: int = 0


TERMS = (
    "Framework contract\n\nThe buyer pays 100 USD for each piece.\nDelivery within ten days.\n",
    "Framework contract\n\nThe buyer pays 90 USD for each piece \u202ehtnom\u202c.\nDelivery within ten days.\n",
)

signer = Agent(
    "zz-signer",
    "1.0.0",
    input=Deal,
    state=DealState,
    output=Sent,
    initial=lambda deal: DealState(deal=deal),
    title="Signer",
)


@signer.node(start=True, title="Sign", to=["sign"])
async def sign(state: DealState, ctx: Context) -> str | End:
    n = min(state.revision, 1)
    papers = [text(TERMS[n], "terms.txt"), pdf(3, f"Contract {n}", "contract.pdf"), png("Stamp", name="stamp.png")]
    if state.deal.is_broken:
        papers[1] = broken_pdf("contract.pdf")
    try:
        await ctx.approve("finance_po", title="Sign the contract", body={"party": state.deal.name}, documents=papers)
    except Rejected:
        state.revision += 1
        return "sign"
    return End(Sent())


signer.validate()


# --- an agent that first has somebody count what there is, and then buys more of it ---------------


stocker = Agent(
    "zz-stocker",
    "1.0.0",
    input=Purchase,
    state=PurchaseState,
    output=Purchase,
    initial=lambda purchase: PurchaseState(purchase=purchase),
    title="Stocker",
    tools=[buy_it],
)


@stocker.node(start=True, title="Count and buy")
async def count_and_buy(state: PurchaseState, ctx: Context) -> End:
    await ctx.signal("counted")
    return End(await ctx.call(buy_it, state.purchase))


stocker.validate()


# --- an agent that two of finance and then legal decide about --------------------------------------


class Lease(BaseModel):
    house: str = "Kanalstraße 7"


class LeaseState(BaseModel):
    lease: Lease


def leases() -> Path:
    """Where the outside world keeps what was signed, a line for each time."""
    return Path(os.environ["DURABLEAGENTS_DATA"]) / "leases.txt"


@tool(
    replay_class=ReplayClass.UNSAFE_ON_REPLAY,
    title="Sign a lease",
    system="notary",
    effect="Binds us for ten years.",
)
async def sign_lease(args: Lease, call: ToolCall) -> Sent:
    """Signs it, each time that it is asked to."""
    with leases().open("a") as file:
        file.write(f"{args.house}\n")
    return Sent(ref="L-1")


tenant = Agent(
    "zz-tenant",
    "1.0.0",
    input=Lease,
    state=LeaseState,
    output=Sent,
    initial=lambda lease: LeaseState(lease=lease),
    title="Tenant",
    tools=[sign_lease],
)


@tenant.node(start=True, title="Sign")
async def rent(state: LeaseState, ctx: Context) -> End:
    by_all = await ctx.approve(
        "finance_po",
        title="Sign a lease",
        tool=sign_lease,
        body=state.lease,
        headline=state.lease.house,
        rule="Leases need two of finance, then legal.",
        effect="Binds us for ten years.",
        quorum=2,
        then=[Stage("legal")],
    )
    return End(await ctx.call(sign_lease, state.lease, grant=by_all))


tenant.validate()


# --- an agent that tells what it was told: yes, no, or that nobody answered ------------------------


class Caller(BaseModel):
    about: str = "a call"
    seconds: int = 5
    then: Literal["reject", "remind"] = "reject"
    by_calendar: bool = False


class CallerState(BaseModel):
    caller: Caller


class Told(BaseModel):
    heard: str


caller = Agent(
    "zz-caller",
    "1.0.0",
    input=Caller,
    state=CallerState,
    output=Told,
    initial=lambda given: CallerState(caller=given),
    title="Caller",
)


@caller.node(start=True, title="Ask")
async def ask(state: CallerState, ctx: Context) -> End:
    given = state.caller
    within = WorkingHours(1 / 60) if given.by_calendar else timedelta(seconds=given.seconds)
    try:
        await ctx.approve(
            "finance_po",
            title=f"Call back about {given.about}",
            headline=given.about,
            within=within,
            on_timeout=given.then,
        )
    except Expired as nobody:
        return End(Told(heard=f"nobody answered, {nobody.verdict}, by {nobody.by}"))
    except Rejected as no:
        return End(Told(heard=f"no, {no.verdict}, by {no.by}: {no.reason}"))
    return End(Told(heard="yes"))


caller.validate()


# --- an agent that hands parcels over at a yard, which may keep it waiting -------------------------


class Parcel(BaseModel):
    yard: str
    name: str = "parcel"
    is_packed: bool = True


class Handed(BaseModel):
    yard: str
    name: str


class ParcelState(BaseModel):
    parcel: Parcel


def _tell(yard: str, **what: str) -> None:
    """As long as the yard takes."""
    with urlopen(Request(yard, json.dumps(what).encode()), timeout=280) as answer:
        answer.read()


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Hand it over",
    system="yard",
    effect="A parcel leaves.",
    timeout=300,
)
def hand_over(args: Handed, call: ToolCall) -> Sent:
    """Once for each key."""
    _tell(args.yard, name=args.name, key=call.key or "")
    return Sent(ref=f"R-{args.name}")


carrier = Agent(
    "zz-carrier",
    "1.0.0",
    input=Parcel,
    state=ParcelState,
    output=Sent,
    title="Carrier",
    tools=[hand_over],
    initial=lambda parcel: ParcelState(parcel=parcel),
)


@carrier.node(start=True, title="Carry")
async def carry(state: ParcelState, ctx: Context) -> End:
    parcel = state.parcel
    if not parcel.is_packed:
        # no call and no step: whatever wants this run to stand still waits for it
        await asyncio.to_thread(_tell, parcel.yard, name=f"{parcel.name}, packed")
    await ctx.call(hand_over, Handed(yard=parcel.yard, name=parcel.name))
    return End(await ctx.call(hand_over, Handed(yard=parcel.yard, name=f"{parcel.name}, papers")))


carrier.validate()
