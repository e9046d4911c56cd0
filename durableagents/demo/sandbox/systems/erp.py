"""The ERP: vendor records and purchase orders."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from ..effects import Receipt
from ..web.fields import Amount, Country, Description, Email, Fields, Name, TaxId
from ..web.wire import wrong


class Vendor(Fields):
    """A vendor's record."""

    legal_name: Name
    country: Country
    tax_id: TaxId
    contact_email: Email
    category: Name


class PurchaseOrder(Fields):
    """A purchase order to a vendor that is on record."""

    vendor_id: Name
    description: Description
    amount_usd: Amount


def create_vendor(connection: sqlite3.Connection, vendor: Vendor, receipt: Receipt) -> dict[str, Any]:
    cursor = connection.execute(
        "INSERT INTO vendors (legal_name, country, tax_id, contact_email, category, run_id, created_at)"
        " VALUES (:legal_name, :country, :tax_id, :contact_email, :category, :run_id, :received_at)",
        vendor.model_dump() | {"run_id": receipt.run_id, "received_at": receipt.received_at},
    )
    return {"vendor_id": f"VND-{cursor.lastrowid:06d}", "status": "active"} | vendor.model_dump()


def file_purchase_order(connection: sqlite3.Connection, order: PurchaseOrder, receipt: Receipt) -> dict[str, Any]:
    cursor = connection.execute(
        "INSERT INTO purchase_orders (vendor_seq, description, amount_usd, run_id, created_at) VALUES (?, ?, ?, ?, ?)",
        (
            known_vendor(connection, order.vendor_id),
            order.description,
            order.amount_usd,
            receipt.run_id,
            receipt.received_at,
        ),
    )
    return {"po_number": f"PO-{cursor.lastrowid:06d}", "status": "filed"} | order.model_dump()


def known_vendor(connection: sqlite3.Connection, vendor_id: str) -> int:
    """The vendor's number. Raises Problem 422."""
    found = re.fullmatch(r"VND-([0-9]{6,12})", vendor_id)
    seq = int(found[1]) if found else 0  # which is nobody's
    if connection.execute("SELECT 1 FROM vendors WHERE seq = ?", (seq,)).fetchone() is None:
        raise wrong("vendor_id", "no such vendor")
    return seq
