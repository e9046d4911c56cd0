"""The shop: what customers ordered and paid, and what they get back."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from durableagents.demo.sandbox.web.wire import wrong

from ..effects import Receipt
from ..web.fields import Amount, Description, Fields, OrderNumber

NOBODYS = "SO-000000"
_FIRST_DAY = date(2026, 1, 5)
_CUSTOMERS = ("Harbour Kitchen", "Studio Halm", "Bakery Ostwind", "Kanal Books", "Atelier Rehm", "Pension Linde")
_GOODS = ("enamel mugs, 48 pieces", "a display shelf", "linen tablecloths, 20 pieces", "reading lamps, 6 pieces")

# Orders with a story: who, what, and what was paid.
_STORIES = {
    "SO-004711": ("Hotel Inselhof", "copper kettles, 12 pieces", "640.00"),
    "SO-004802": ("Café Lindwurm", "an espresso machine with two groups", "4750.00"),
    "SO-004950": ("Museum am Kai", "display cases, 4 pieces", "9200.00"),
    "SO-005003": ("Bistro Ringel", "bar stools, 3 pieces", "287.00"),
}


class Asked(Fields):
    """An order that is looked up."""

    number: OrderNumber


class Refund(Fields):
    """Money that a customer gets back."""

    order_number: OrderNumber
    amount_usd: Amount
    note: Description


def order(query: Mapping[str, Any]) -> dict[str, Any]:
    """Raises Problem 422. The answer is a function of the query alone, so a replayed run sees what the first one
    saw."""
    return _order("number", Asked.read(query).number)


def refund(connection: sqlite3.Connection, wanted: Refund, receipt: Receipt) -> dict[str, Any]:
    """Raises Problem 422 for more than what is left of what was paid."""
    paid = Decimal(_order("order_number", wanted.order_number)["paid_usd"])
    rows = connection.execute("SELECT amount_usd FROM refunds WHERE order_number = ?", (wanted.order_number,))
    left = paid - sum((Decimal(amount) for (amount,) in rows), Decimal())
    if Decimal(wanted.amount_usd) > left:
        raise wrong("amount_usd", f"is more than the {left:.2f} that are left of what was paid")
    cursor = connection.execute(
        "INSERT INTO refunds (order_number, amount_usd, note, run_id, created_at) VALUES (?, ?, ?, ?, ?)",
        (wanted.order_number, wanted.amount_usd, wanted.note, receipt.run_id, receipt.received_at),
    )
    return {"refund_id": f"RFD-{cursor.lastrowid:06d}"} | wanted.model_dump()


def _order(field: str, number: str) -> dict[str, Any]:
    if number == NOBODYS:
        raise wrong(field, "no such order")
    dice = hashlib.sha256(number.encode()).digest()
    customer, goods, paid = _STORIES.get(number) or (
        _CUSTOMERS[dice[0] % len(_CUSTOMERS)],
        _GOODS[dice[1] % len(_GOODS)],
        f"{int.from_bytes(dice[2:4]) % 900 + 60}.00",
    )
    ordered = _FIRST_DAY + timedelta(days=dice[4] % 120)
    return {
        "order_number": number,
        "customer": customer,
        "goods": goods,
        "ordered_on": ordered.isoformat(),
        "paid_usd": paid,
    }
