from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from durableagents import Amount, Gate, ReplayClass, ToolCall, tool
from runs.engine.errors import DefinitionError
from runs.engine.fingerprint.described import tool_described
from runs.engine.gating.fields import amount_in
from tests.cases import each_case


class Order(BaseModel):
    total: Decimal | float | int | str
    currency: str = "EUR"


def said(declared: Any, **order: Any) -> Any:
    return Gate(queue="q", rule="r", amount=declared).amount_for(Order(**({"total": Decimal("12.50")} | order)))


def test_an_amount_is_a_field_and_a_currency_or_a_function() -> None:
    fields = {"amount": {"value": "12.50", "currency": "USD"}}
    assert said("total USD") == fields == said(lambda order: Amount(order.total, "USD"))
    assert said("total currency") == {"amount": {"value": "12.50", "currency": "EUR"}}
    assert said("total USD", total=0.1) == {"amount": {"value": "0.1", "currency": "USD"}}
    assert amount_in(fields) == Amount(Decimal("12.50"), "USD")


def test_a_gate_without_an_amount_says_nothing_of_one() -> None:
    assert said(None) == {} and amount_in({"tool": "x"}) is None


@each_case(
    ("declared", "order"),
    [
        ("gone USD", {}),
        ("total gone", {}),
        ("total currency", {"currency": "euro"}),
        ("total USD", {"total": "NaN"}),
        ("total USD", {"total": "1e40"}),
        ("total USD", {"total": "1E-30000000"}),
        ("total USD", {"total": "much"}),
        (lambda order: 5, {}),
        (lambda order: 1 / 0, {}),
        (lambda order: Amount(Decimal("inf"), "USD"), {}),
        (lambda order: None, {}),
    ],
)
def test_an_amount_that_can_not_be_told_says_so_and_is_nobodys_zero(declared: Any, order: dict[str, Any]) -> None:
    found = said(declared, **order)
    assert set(found["amount"]) == {"problem"} and isinstance(amount_in(found), str)


@each_case(
    "plan",
    [
        {"amount": 5},
        {"amount": {"value": 5}},
        {"amount": {"value": "x", "currency": "USD"}},
        {"amount": {"value": "1", "currency": 3}},
        {"amount": None},
    ],
)
def test_a_plan_that_was_damaged_tells_no_amount(plan: Any) -> None:
    assert isinstance(amount_in(plan), str)


@each_case("declared", ["total", "total USD now", "", 5, Decimal, "1x USD"])
def test_what_declares_no_amount_is_refused_where_it_is_written(declared: Any) -> None:
    with pytest.raises(DefinitionError, match="give a plain function of the tool's input"):
        Gate(queue="q", rule="r", amount=declared)


def test_a_tool_without_an_amount_is_described_as_it_was_before_there_were_any() -> None:
    gate = Gate(queue="q", rule="r")

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, gate=gate)
    async def buy(order: Order, call: ToolCall) -> Order:
        return order

    def code(function: Any) -> str:
        return getattr(function, "__name__", str(function))

    described = tool_described(buy, code)["gate"]
    assert set(described) == {"queue", "rule", "when", "headline", "within"}
    priced = replace(buy, gate=Gate(queue="q", rule="r", amount="total USD"))
    assert tool_described(priced, code)["gate"] == described | {"amount": "total USD"} | {
        "when": tool_described(priced, code)["gate"]["when"]
    }
