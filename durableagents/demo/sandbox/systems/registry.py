"""The company registry, the credential service, the library and the shop.

The registry has an answer for every well-formed company name.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from ..effects import Receipt
from ..settings import legal_form, normalise
from ..web.fields import (
    Amount,
    Country,
    Description,
    Digest,
    Fields,
    Name,
    OrderNumber,
    Scope,
    TaxId,
    Text,
)
from ..web.wire import wrong
from .erp import known_vendor


class Credential(Fields):
    """A request for a credential."""

    vendor_id: Name
    scope: Scope


def provision(connection: sqlite3.Connection, wanted: Credential, receipt: Receipt) -> dict[str, Any]:
    secret = f"sk_sandbox_{secrets.token_urlsafe(32)}"
    cursor = connection.execute(
        "INSERT INTO credentials (vendor_seq, scope, secret, run_id, created_at) VALUES (?, ?, ?, ?, ?)",
        (
            known_vendor(connection, wanted.vendor_id),
            wanted.scope,
            secret,
            receipt.run_id,
            receipt.received_at,
        ),
    )
    return {"credential_id": f"CRD-{cursor.lastrowid:06d}"} | wanted.model_dump() | {"secret": secret}


DIMENSIONS = 8


class Embedding(Fields):
    """A text to embed as a vector."""

    document_id: Name
    sha256: Digest
    text: Text


class Report(Fields):
    """A report, with the digest that its sender computed of it."""

    title: Name
    sha256: Digest
    text: Text


def embed(connection: sqlite3.Connection, wanted: Embedding, receipt: Receipt) -> dict[str, Any]:
    """Return the text's vector, which is always the same. Each request costs money and is recorded."""
    cursor = connection.execute(
        "INSERT INTO embeddings (document_id, sha256, run_id, created_at) VALUES (?, ?, ?, ?)",
        (wanted.document_id, wanted.sha256, receipt.run_id, receipt.received_at),
    )
    vector = [0] * DIMENSIONS
    for word in wanted.text.lower().split():
        vector[hashlib.sha256(word.encode()).digest()[0] % DIMENSIONS] += 1
    return {"embedding_id": f"EMB-{cursor.lastrowid:06d}", "vector": vector}


def publish(connection: sqlite3.Connection, report: Report, receipt: Receipt) -> dict[str, Any]:
    """Store a report. Raises Problem 422 if the text doesn't match its digest."""
    if hashlib.sha256(report.text.encode()).hexdigest() != report.sha256:
        raise wrong("sha256", "is not the digest of the text")
    cursor = connection.execute(
        "INSERT INTO reports (title, sha256, text, run_id, created_at) VALUES (?, ?, ?, ?, ?)",
        (report.title, report.sha256, report.text, receipt.run_id, receipt.received_at),
    )
    return {"report_id": f"REP-{cursor.lastrowid:06d}", "sha256": report.sha256}


NOBODYS = "SO-000000"
_FIRST_DAY = date(2026, 1, 5)
_CUSTOMERS = ("Harbour Kitchen", "Studio Halm", "Bakery Ostwind", "Kanal Books", "Atelier Rehm", "Pension Linde")
_GOODS = ("enamel mugs, 48 pieces", "a display shelf", "linen tablecloths, 20 pieces", "reading lamps, 6 pieces")

# Orders with a story: who, what, and what was paid.
_SHOP_STORIES = {
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
    """Look up an order. Raises Problem 422.

    The answer depends only on the query, so a replayed run sees what the first one saw.
    """
    return _order("number", Asked.read(query).number)


def refund(connection: sqlite3.Connection, wanted: Refund, receipt: Receipt) -> dict[str, Any]:
    """Refund a customer. Raises Problem 422 if the amount is above the unrefunded rest of the payment."""
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
    customer, goods, paid = _SHOP_STORIES.get(number) or (
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


_STREETS = (
    "Harbour Street",
    "Mill Lane",
    "Foundry Road",
    "Quay",
    "Station Square",
    "Orchard Way",
    "Ropewalk",
    "Kiln Street",
)
_CITIES = (
    "Northport",
    "Elmsford",
    "Grauhafen",
    "Vieux-Moulin",
    "Tamsalu",
    "Porto Claro",
    "Brackwater",
    "Oster Holm",
)
_FOUNDED_FIRST = date(1958, 1, 2)

# Names with a story, by their normalised form. The package docstring documents them.
_STORIES: dict[str, tuple[str, str | None, str]] = {
    normalise("Phoenix Dissolved Trading Ltd"): (
        "dissolved",
        "2021-03-31",
        "Struck off the register for failing to file accounts.",
    ),
    normalise("Orion Ghost Logistics LLC"): (
        "dissolved",
        "2023-11-15",
        "Wound up voluntarily; no successor is registered.",
    ),
    normalise("Volga Heavy Industries"): (
        "sanctioned",
        None,
        "Sanctions note: assets frozen, see list SDN-X entry 1.",
    ),
    normalise("Crimson Delta Maritime"): (
        "sanctioned",
        None,
        "Sanctions note: vessels and owners listed, see list EU-C entry 7.",
    ),
}


class Company(Fields):
    """A company that is looked up."""

    name: Name
    country: Country
    tax_id: TaxId


def lookup(query: Mapping[str, Any]) -> dict[str, Any]:
    """Look up a company. Raises Problem 422.

    The answer depends only on the query, so a replayed run sees what the first one saw.
    """
    asked = Company.read(query)
    name, country, tax_id = asked.name, asked.country, asked.tax_id
    dice = hashlib.sha256("|".join((normalise(name), country, tax_id.upper())).encode()).digest()
    status, dissolved_on, note = _STORIES.get(normalise(name), ("active", None, ""))
    founded = _FOUNDED_FIRST + timedelta(days=int.from_bytes(dice[0:3]) % 22_000)
    return {
        "legal_name": name,
        "country": country,
        "tax_id": tax_id,
        "registration_number": f"{country}{int.from_bytes(dice[3:7]) % 10**8:08d}",
        "status": status,
        "legal_form": legal_form(name),
        "incorporated_on": founded.isoformat(),
        "dissolved_on": dissolved_on,
        "address": {
            "street": f"{_STREETS[dice[7] % len(_STREETS)]} {dice[8] % 180 + 1}",
            "city": _CITIES[dice[9] % len(_CITIES)],
            "postal_code": f"{int.from_bytes(dice[10:13]) % 90_000 + 10_000}",
            "country": country,
        },
        "notes": [note] if note else [],
    }
