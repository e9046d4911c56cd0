"""An agent whose every text attacks the page that shows it: input, model, tool, evidence, error."""

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
    state=Said,
    output=Said,
    title=f"Hostile {ATTACK}",
    description=ATTACK,
    samples=[Sample(label=ATTACK, input={"text": ATTACK})],
    tools=[do_it, read_it],
    assistants=[voice],
)


@hostile.node(start=True, title=ATTACK)
async def speak(state: Said, ctx: Context) -> End:
    await ctx.think(voice, ATTACK)
    try:
        await ctx.call(read_it, Said())
    except ToolFailure:
        pass
    if state.fails:
        raise RuntimeError(ATTACK)
    return End(await ctx.call(do_it, Said(), evidence=[Evidence(ATTACK, ATTACK, {ATTACK: [ATTACK]})], why=ATTACK))


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


clerk = Agent("zz-clerk", "1.0.0", input=Order, state=Order, output=Sent, title="Clerk", tools=[send_letter, buy_many])


@clerk.node(start=True, title="Work")
async def work(state: Order, ctx: Context) -> End:
    if state.ending == "unknown":
        return End(await ctx.call(send_letter, Letter(legal_name=state.legal_name)))
    if state.ending == "asks":
        await ctx.approve(
            "finance_po",
            title=f"Take on {state.legal_name} at once",
            body={"vendor": state.legal_name},
            headline=state.legal_name,
        )
        return End(Sent())
    return End(await ctx.call(buy_many, Many(values={f"value_{n}": f"{n} pieces" for n in range(state.items)})))


# --- an agent that buys one thing, of which approvers may change amount and date -----------------


class Purchase(BaseModel):
    item: str = "chairs"
    amount_usd: int = 84_000
    needed_by: str = "2027-01-31"


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


buyer = Agent("zz-buyer", "1.0.0", input=Purchase, state=Purchase, output=Purchase, title="Buyer", tools=[buy_it])


@buyer.node(start=True, title="Buy")
async def buy(state: Purchase, ctx: Context) -> End:
    return End(await ctx.call(buy_it, state))


# --- an agent that has papers signed, and brings others after a rejection -------------------------


class Deal(BaseModel):
    name: str = "Nordlicht"
    is_broken: bool = False
    revision: int = 0


TERMS = (
    "Framework contract\n\nThe buyer pays 100 USD for each piece.\nDelivery within ten days.\n",
    "Framework contract\n\nThe buyer pays 90 USD for each piece \u202ehtnom\u202c.\nDelivery within ten days.\n",
)

signer = Agent("zz-signer", "1.0.0", input=Deal, state=Deal, output=Sent, title="Signer")


@signer.node(start=True, title="Sign", to=["sign"])
async def sign(state: Deal, ctx: Context) -> str | End:
    n = min(state.revision, 1)
    papers = [text(TERMS[n], "terms.txt"), pdf(3, f"Contract {n}", "contract.pdf"), png("Stamp", name="stamp.png")]
    if state.is_broken:
        papers[1] = broken_pdf("contract.pdf")
    try:
        await ctx.approve("finance_po", title="Sign the contract", body={"party": state.name}, documents=papers)
    except Rejected:
        state.revision += 1
        return "sign"
    return End(Sent())


# --- an agent with two approvals of finance and then legal's ---------------------------------------


class Lease(BaseModel):
    house: str = "Kanalstraße 7"


def leases() -> Path:
    """Return the file in which the notary lists signed leases."""
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


tenant = Agent("zz-tenant", "1.0.0", input=Lease, state=Lease, output=Sent, title="Tenant", tools=[sign_lease])


@tenant.node(start=True, title="Sign")
async def rent(state: Lease, ctx: Context) -> End:
    by_all = await ctx.approve(
        "finance_po",
        title="Sign a lease",
        tool=sign_lease,
        body=state,
        headline=state.house,
        rule="Leases need two of finance, then legal.",
        effect="Binds us for ten years.",
        quorum=2,
        then=[Stage("legal")],
    )
    return End(await ctx.call(sign_lease, state, grant=by_all))


# --- an agent that reports: approved, rejected, or expired -----------------------------------------


class Caller(BaseModel):
    about: str = "a call"
    seconds: int = 5
    then: Literal["reject", "remind"] = "reject"


class Told(BaseModel):
    heard: str


caller = Agent("zz-caller", "1.0.0", input=Caller, state=Caller, output=Told, title="Caller")


@caller.node(start=True, title="Ask")
async def ask(state: Caller, ctx: Context) -> End:
    try:
        await ctx.approve(
            "finance_po",
            title=f"Call back about {state.about}",
            headline=state.about,
            within=timedelta(seconds=state.seconds),
            on_timeout=state.then,
        )
    except Expired as nobody:
        return End(Told(heard=f"nobody answered, {nobody.verdict}, by {nobody.by}"))
    except Rejected as no:
        return End(Told(heard=f"no, {no.verdict}, by {no.by}: {no.reason}"))
    return End(Told(heard="yes"))


# --- an agent that hands parcels over at a yard, which may keep it waiting -------------------------


class Parcel(BaseModel):
    yard: str
    name: str = "parcel"
    is_packed: bool = True


class Handed(BaseModel):
    yard: str
    name: str


def _tell(yard: str, **what: str) -> None:
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


carrier = Agent("zz-carrier", "1.0.0", input=Parcel, state=Parcel, output=Sent, title="Carrier", tools=[hand_over])


@carrier.node(start=True, title="Carry")
async def carry(state: Parcel, ctx: Context) -> End:
    if not state.is_packed:
        # no call and no step: a pause of this run must wait for it
        await asyncio.to_thread(_tell, state.yard, name=f"{state.name}, packed")
    await ctx.call(hand_over, Handed(yard=state.yard, name=state.name))
    return End(await ctx.call(hand_over, Handed(yard=state.yard, name=f"{state.name}, papers")))
