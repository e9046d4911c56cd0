"""The shop knows every order, and refunds nobody more than they paid."""

from __future__ import annotations

from typing import Any

from tests.cases import each_case
from tests.system.sandbox.harness import Sandbox


def refund(amount: Any = "100.00", **more: Any) -> dict[str, Any]:
    return {"order_number": "SO-004711", "amount_usd": amount, "note": "Sorry."} | more


def test_an_order_is_always_the_same_one(shared: Sandbox) -> None:
    hotel, again, other = (
        shared.client.get("/api/shop/orders", params={"number": number}).json()
        for number in ("SO-004711", "SO-004711", "SO-123456")
    )
    assert hotel == again and hotel["customer"] == "Hotel Inselhof" and hotel["paid_usd"] == "640.00"
    assert float(other["paid_usd"]) >= 60 and other["order_number"] == "SO-123456"


@each_case("number", ["SO-000000", "4711", "SO-1", "SO-１２３４５６", ""])
def test_what_is_no_order_is_refused(shared: Sandbox, number: str) -> None:
    assert shared.client.get("/api/shop/orders", params={"number": number}).status_code == 422


def test_refunds_of_an_order_never_add_up_to_more_than_was_paid(sandbox: Sandbox) -> None:
    assert sandbox.post("/api/shop/refunds", refund("600.00"), "a").status_code == 201
    over = sandbox.post("/api/shop/refunds", refund("40.01"), "b")
    assert over.status_code == 422 and "40.00 that are left" in over.json()["detail"]
    assert sandbox.post("/api/shop/refunds", refund("40.00"), "c").status_code == 201
    assert sandbox.post("/api/shop/refunds", refund("0.01"), "d").status_code == 422
    assert len(sandbox.executed("refund")) == 2


@each_case("wrong", [{"amount_usd": "0"}, {"amount_usd": 1.5}, {"note": ""}, {"order_number": "x"}])
def test_what_is_no_refund_is_refused(shared: Sandbox, wrong: dict[str, Any]) -> None:
    assert shared.post("/api/shop/refunds", refund() | wrong, "k").status_code == 422
    assert shared.executed("refund") == []
