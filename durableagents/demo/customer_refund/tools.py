"""Tools of the refund agent: read an order (pure) and refund a customer (keyed).

People have eight working hours to approve a refund, or two minutes if the customer is on the phone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import Field, PlainSerializer

from durableagents import Gate, Happened, ReplayClass, ToolCall, WorkingHours, tool
from durableagents.demo import upstream
from durableagents.demo.fields import Line, MultiLine
from durableagents.demo.tools import Answer, Arguments

OrderNumber = Annotated[str, Field(pattern=r"^SO-[0-9]{6}$")]
# A number in its schema, so that policies can compare it; written as text with two places.
Money = Annotated[
    Decimal,
    Field(gt=0, le=1_000_000, decimal_places=2),
    PlainSerializer(lambda value: f"{value:.2f}", when_used="json"),
]


class OrderQuery(Arguments):
    number: OrderNumber


class Order(Answer):
    order_number: str
    customer: str
    goods: str
    ordered_on: str
    paid_usd: Money


@tool(replay_class=ReplayClass.PURE, title="Look the order up", system="shop", effect="Reads the shop's orders.")
async def look_up_order(args: OrderQuery, call: ToolCall) -> Order:
    """Look an order up: who, what, when, and what was paid."""
    return await upstream.get("/api/shop/orders", args.model_dump(), call, Order)


class Refund(Arguments):
    """The plan to which an approval is bound. Whose order it is was looked up; how much and in which words is for
    people to say."""

    customer: Line
    order_number: OrderNumber
    amount_usd: Money = Field(title="Amount in US dollars")
    note: MultiLine = Field(title="Note to the customer", description="The customer reads it next to the amount.")


class Refunded(Answer):
    refund_id: str
    amount_usd: Money


class _Stored(Answer):
    results: list[Refunded]


async def _refunded(args: Refund, call: ToolCall) -> Happened | None:
    """Return the refund made under this call's key, or None.

    After None, the call is repeated. The key makes that safe even if the first request still arrives.
    """
    stored = await upstream.get("/api/shop/refunds", {"idempotency_key": str(call.key)}, call, _Stored)
    return Happened(stored.results[0]) if stored.results else None


_GATE = Gate(
    queue="customer_refunds",
    rule="Money goes back to a customer only after a person has agreed",
    headline=lambda refund: f"${refund.amount_usd:,.2f}",
    amount="amount_usd USD",
    editable=["amount_usd", "note"],
    same=["customer"],
    within=WorkingHours(8),
    on_timeout="escalate",
    escalate_to="legal",
)


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Refund a customer",
    system="shop",
    effect="Pays the money back to the card that the order was paid with. It can't be taken back.",
    risk="medium",
    gate=_GATE,
    external_id="refund_id",
    reconcile=_refunded,
)
async def refund_customer(args: Refund, call: ToolCall) -> Refunded:
    """Pay a customer's money back, once."""
    body = args.model_dump(mode="json", exclude={"customer"})
    return await upstream.post("/api/shop/refunds", body, call, Refunded)


# The deadline is short, so that the reminder and the escalation can be watched.
refund_at_once = replace(
    refund_customer,
    name="refund_at_once",
    title="Refund a customer who is on the phone",
    gate=replace(
        _GATE, rule="A customer on the phone must be answered within two minutes", within=timedelta(minutes=2)
    ),
)
