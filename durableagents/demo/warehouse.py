"""Receiving a delivery: wait for the carrier's message and the warehouse's count at the same time, in any order.

A small agent that shows how to wait for outside systems and people. It has no effects.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from durableagents import Agent, Context, End, Failure, Sample, TimedOut


class Delivery(BaseModel):
    """The ordered goods."""

    model_config = ConfigDict(extra="forbid")

    order_number: str = Field(title="Order number", min_length=1, max_length=40, examples=["PO-000052"])
    supplier: str = Field(title="Supplier", min_length=1, max_length=200)
    pallets: int = Field(title="Pallets ordered", ge=1, le=500)


class Handover(BaseModel):
    """The carrier's message when it has handed the goods over: the signal `delivered`."""

    carrier: str = Field(min_length=1, max_length=200)
    pallets: int = Field(ge=0, le=500)


class Count(BaseModel):
    """The goods found on the floor."""

    pallets: int = Field(title="Pallets counted", ge=0, le=500)
    damaged: int = Field(title="Damaged among them", ge=0, le=500)
    note: str = Field(default="", title="Note", max_length=2000)


class Receipt(BaseModel):
    """Result of the run."""

    order_number: str
    verdict: Literal["complete", "short", "damaged"]
    counted: int
    missing: int
    carrier: str | None


class State(BaseModel):
    delivery: Delivery
    handover: Handover | None = None
    count: Count | None = None


agent = Agent(
    "warehouse-delivery",
    "1.0.0",
    title="Receive a delivery",
    description="Waits for the carrier's notice and the warehouse count, then reports whether the delivery is complete.",
    input=Delivery,
    state=State,
    output=Receipt,
    initial=lambda delivery: State(delivery=delivery),
    samples=[
        Sample(
            label="Four pallets from Nordlicht Antriebe",
            input={"order_number": "PO-000052", "supplier": "Nordlicht Antriebe GmbH", "pallets": 4},
        )
    ],
)


@agent.node(start=True, to=["compare"], title="Wait for the goods")
async def receive(state: State, ctx: Context) -> str:
    """The carrier may forget to say so; without a count nothing goes on."""
    ordered = state.delivery
    try:
        state.handover, state.count = await ctx.gather(
            ctx.signal("delivered", Handover, within=timedelta(days=14), or_else=None),
            ctx.ask(
                "operator",
                title=f"What came for {ordered.order_number} from {ordered.supplier}?",
                schema=Count,
                prefilled={"pallets": ordered.pallets, "damaged": 0},
                within=timedelta(days=30),
            ),
        )
    except TimedOut as late:
        raise Failure(f"Nobody counted what came for {ordered.order_number}.", code="not_counted") from late
    return "compare"


@agent.node(title="Compare")
async def compare(state: State, ctx: Context) -> End:
    """Compare the order with the delivered goods."""
    assert state.count is not None
    missing = max(0, state.delivery.pallets - state.count.pallets)
    verdict: Literal["complete", "short", "damaged"] = (
        "short" if missing else "damaged" if state.count.damaged else "complete"
    )
    carrier = state.handover.carrier if state.handover else None
    return End(
        Receipt(
            order_number=state.delivery.order_number,
            verdict=verdict,
            counted=state.count.pallets,
            missing=missing,
            carrier=carrier,
        )
    )
