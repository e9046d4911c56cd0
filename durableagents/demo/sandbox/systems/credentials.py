"""The credential service: an API secret per vendor and scope, told once per key and the same at every repeat."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping
from typing import Any

from .. import fields
from ..effects import Receipt
from .erp import known_vendor

LONGEST_SCOPE = 200


def check(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "vendor_id": fields.text(body, "vendor_id"),
        "scope": fields.text(body, "scope", longest=LONGEST_SCOPE),
    }


def provision(
    connection: sqlite3.Connection, wanted: dict[str, Any], receipt: Receipt
) -> dict[str, Any]:
    secret = f"sk_sandbox_{secrets.token_urlsafe(32)}"
    cursor = connection.execute(
        "INSERT INTO credentials (vendor_seq, scope, secret, run_id, created_at) VALUES (?, ?, ?, ?, ?)",
        (
            known_vendor(connection, wanted),
            wanted["scope"],
            secret,
            receipt.run_id,
            receipt.received_at,
        ),
    )
    return {"credential_id": f"CRD-{cursor.lastrowid:06d}"} | wanted | {"secret": secret}
