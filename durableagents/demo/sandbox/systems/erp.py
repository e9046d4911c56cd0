"""The ERP: vendor records and purchase orders."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from .. import fields
from ..effects import Receipt
from ..problems import wrong


def check_vendor(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "legal_name": fields.text(body, "legal_name"),
        "country": fields.country(body),
        "tax_id": fields.tax_id(body),
        "contact_email": fields.email(body),
        "category": fields.text(body, "category"),
    }


def create_vendor(
    connection: sqlite3.Connection, vendor: dict[str, Any], receipt: Receipt
) -> dict[str, Any]:
    cursor = connection.execute(
        "INSERT INTO vendors (legal_name, country, tax_id, contact_email, category, run_id, created_at)"
        " VALUES (:legal_name, :country, :tax_id, :contact_email, :category, :run_id, :received_at)",
        vendor | {"run_id": receipt.run_id, "received_at": receipt.received_at},
    )
    return {"vendor_id": f"VND-{cursor.lastrowid:06d}", "status": "active"} | vendor


def check_purchase_order(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "vendor_id": fields.text(body, "vendor_id"),
        "description": fields.text(body, "description", longest=fields.LONGEST_DESCRIPTION),
        "amount_usd": fields.amount(body),
    }


def file_purchase_order(
    connection: sqlite3.Connection, order: dict[str, Any], receipt: Receipt
) -> dict[str, Any]:
    cursor = connection.execute(
        "INSERT INTO purchase_orders (vendor_seq, description, amount_usd, run_id, created_at) VALUES (?, ?, ?, ?, ?)",
        (
            known_vendor(connection, order),
            order["description"],
            order["amount_usd"],
            receipt.run_id,
            receipt.received_at,
        ),
    )
    return {"po_number": f"PO-{cursor.lastrowid:06d}", "status": "filed"} | order


def known_vendor(connection: sqlite3.Connection, body: Mapping[str, Any]) -> int:
    """The number of the vendor named in ``vendor_id``. Raises Problem 422."""
    seq = fields.numbered(body, "vendor_id", "VND")
    if connection.execute("SELECT 1 FROM vendors WHERE seq = ?", (seq,)).fetchone() is None:
        raise wrong("vendor_id", "no such vendor")
    return seq
