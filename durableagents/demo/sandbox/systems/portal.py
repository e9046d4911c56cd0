"""The vendor portal: asks a vendor for a W-9 and calls back once the form is signed.

``callbacks.py`` makes the calls.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from ..effects import Receipt, now, sha256, to_json
from ..web.fields import Email, Fields, Name, TaxId, Url

_CLASSIFICATIONS = ("C corporation", "S corporation", "Partnership", "Limited liability company")
_SIGNATORIES = ("J. Lindqvist", "M. Okafor", "R. Castellanos", "A. Petersen", "S. Nakamura")


class W9Request(Fields):
    """A request for a vendor's form, with the URL to send it to."""

    legal_name: Name
    tax_id: TaxId
    contact_email: Email
    callback_url: Url


def request_w9(connection: sqlite3.Connection, wanted: W9Request, receipt: Receipt) -> dict[str, Any]:
    cursor = connection.execute(
        "INSERT INTO w9_requests (legal_name, tax_id, contact_email, callback_url, run_id, created_at, requested_at)"
        " VALUES (:legal_name, :tax_id, :contact_email, :callback_url, :run_id, :received_at, :requested_at)",
        wanted.model_dump()
        | {
            "run_id": receipt.run_id,
            "received_at": receipt.received_at,
            "requested_at": time.time(),
        },
    )
    return {"request_id": f"REQ-{cursor.lastrowid:06d}", "status": "requested"}


def release(connection: sqlite3.Connection, seq: int) -> bool:
    """Make a form due now, whatever its delay or back-off (for the button "Send it now").

    Return False if there is no such request.
    """
    cursor = connection.execute(
        "UPDATE w9_requests SET is_released = 1, next_attempt_at = 0 WHERE seq = ?",
        (seq,),
    )
    return cursor.rowcount == 1


def signed_notice(connection: sqlite3.Connection, seq: int) -> tuple[str, bytes]:
    """Return the callback's URL and body. The first call signs the form, which never changes afterwards."""
    row = connection.execute("SELECT * FROM w9_requests WHERE seq = ?", (seq,)).fetchone()
    if row["notice"] is None:
        notice = to_json(_notice(row))
        connection.execute("UPDATE w9_requests SET notice = ? WHERE seq = ?", (notice, seq))
    else:
        notice = row["notice"]
    return row["callback_url"], notice.encode()


def _notice(row: sqlite3.Row) -> dict[str, Any]:
    form = {
        "legal_name": row["legal_name"],
        "tax_id": row["tax_id"],
        "classification": _CLASSIFICATIONS[row["seq"] % len(_CLASSIFICATIONS)],
        "signed_by": _SIGNATORIES[row["seq"] % len(_SIGNATORIES)],
        "signed_at": now(),
    }
    document = to_json(form).encode()
    return {
        "request_id": f"REQ-{row['seq']:06d}",
        "status": "received",
        "form": form | {"document_sha256": sha256(document)},
    }
