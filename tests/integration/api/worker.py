"""An agent with every kind of wait, and a worker in a thread to drive it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from durableagents import (
    Agent,
    Assistant,
    Context,
    End,
    Evidence,
    Failure,
    Gate,
    Pending,
    Rejected,
    ReplayClass,
    ToolCall,
    TransportError,
    tool,
)
from runs.fleet import members
from runs.fleet.members import identify, incarnation_id
from runs.workers.run_loop import Host
from tests.integration.runs.hosts import serving

TOKENS: dict[str, str] = {}


class Purchase(BaseModel):
    item: str
    amount: int
    ending: Literal["well", "failure", "unknown"] = "well"


class Basket(BaseModel):
    order: Purchase
    price: int = 0


class Asked(BaseModel):
    item: str


class Quote(BaseModel):
    price: int


class Paid(BaseModel):
    receipt: str


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Quote, title="Ask for a quote")
async def ask_quote(args: Asked, call: ToolCall) -> Pending:
    """The supplier calls back."""
    assert call.callback_url is not None
    TOKENS[call.run_id] = call.callback_url.rsplit("/", 1)[1]
    return Pending(receipt={"ticket": 7, "answer_to": call.callback_url}, within=timedelta(days=1))


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Pay",
    effect="Moves money.",
    external_id="receipt",
    gate=Gate(
        queue="finance_po",
        rule="Anything above 100",
        editable=["amount"],
        when=lambda args: args.amount > 100,
        headline=lambda args: f"${args.amount}",
    ),
)
async def pay(args: Purchase, call: ToolCall) -> Paid:
    """Pays."""
    return Paid(receipt=f"paid {args.amount}")


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, title="Send a letter")
async def send_letter(args: Asked, call: ToolCall) -> Paid:
    """Nobody knows whether it left."""
    raise TransportError("the line went dead")


async def _offline(messages: list[Any], info: Any) -> ModelResponse:
    if len(messages) == 1:
        return ModelResponse(parts=[TextPart("Let me think."), ToolCallPart("final_result", {"price": 1})])
    raise AssertionError("one turn is enough")


@contextmanager
def purchase_agent() -> Iterator[Agent]:
    """Register an agent that thinks, waits for a quote, pays behind a gate, and ends as its input says."""
    from runs.engine.agents import registry

    thinker = Assistant(name="thinker", instructions="Guess the price.", output=Quote, offline=_offline)
    agent = Agent(
        "purchase",
        "1.0.0",
        input=Purchase,
        state=Basket,
        output=Paid,
        initial=lambda order: Basket(order=order),
        tools=[ask_quote, pay, send_letter],
        assistants=[thinker],
    )

    @agent.node(start=True, to=("buy",))
    async def shop(state: Basket, ctx: Context) -> str:
        await ctx.think(thinker, f"What does a {state.order.item} cost?")
        state.price = (await ctx.call(ask_quote, Asked(item=state.order.item))).price
        return "buy"

    @agent.node()
    async def buy(state: Basket, ctx: Context) -> End:
        if state.order.ending == "failure":
            raise Failure("The shop is closed.", code="closed")
        if state.order.ending == "unknown":
            await ctx.call(send_letter, Asked(item=state.order.item))
        try:
            evidence = [Evidence(label="Quote", source="supplier", content={"price": state.price})]
            return End(await ctx.call(pay, state.order, evidence=evidence, why="It is needed."))
        except Rejected as denied:
            raise Failure(denied.reason, code="rejected") from denied

    agent.validate()
    try:
        yield agent
    finally:
        registry.remove(agent.graph_id)


@contextmanager
def working() -> Iterator[Host]:
    identity = identify(os.getpid())
    assert identity is not None
    members.beat(kind="worker", pid=os.getpid())
    try:
        with serving(incarnation_id(identity)) as host:
            try:
                yield host
            finally:
                host.drain(5)
    finally:
        members.forget("worker", os.getpid())
        members.hang_up()
