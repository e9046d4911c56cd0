"""The credential service: an API secret per vendor and scope, told once per key and the same at every repeat."""

from __future__ import annotations

import secrets
import sqlite3
from typing import Any

from ..effects import Receipt
from ..web.fields import Fields, Name, Scope
from .erp import known_vendor


class Credential(Fields):
    """A secret that is asked for."""

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
