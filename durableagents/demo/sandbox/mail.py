"""The mail server: a message is on disk before the 250, and sending it twice is two messages."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from email import message_from_bytes
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import SMTPUTF8, compat32, default
from re import ASCII, fullmatch
from typing import cast

from aiosmtpd.smtp import SMTP, Envelope, Session

from .effects import Receipt, is_run_id, mark_executed, now, sha256, to_json
from .faults import FaultBook, endure
from .operations import MAIL, SEND_WELCOME
from .store import Store, StoreUnavailable

LARGEST_MESSAGE = 1 << 20
_STORED = "250 2.0.0 stored"
_INJECTED = "451 4.3.0 injected error: nothing was done"
_REFUSED = "550 5.7.1 refused, as the fault says: nothing was done"
_UNAVAILABLE = "451 4.3.0 the store can't be written: nothing was done"


class Inbox:
    """aiosmtpd's handler: one call per message, after the final dot."""

    def __init__(self, store: Store, faults: FaultBook) -> None:
        self._store = store
        self._faults = faults

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        raw = envelope.content or b""
        raw = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogateescape")
        headers = BytesHeaderParser(policy=compat32).parsebytes(raw)
        receipt = _receipt(headers, raw)
        try:
            request_id = await self._store.write(receipt.record)
            fault = self._faults.meeting(receipt.system, receipt.operation)
            if await endure(fault):
                return _INJECTED
            if fault.refuses:
                return _REFUSED
            await self._store.write(lambda connection: _keep(connection, receipt, request_id, envelope, raw))
        except StoreUnavailable:
            return _UNAVAILABLE
        if fault.strikes_after:
            # The sender reads the end of the connection where the 250 should have been.
            cast(asyncio.Transport, server.transport).close()
        return _STORED


def make_server(inbox: Inbox) -> SMTP:
    """Return a protocol instance for one connection."""
    return SMTP(
        inbox,
        enable_SMTPUTF8=True,
        data_size_limit=LARGEST_MESSAGE,
        hostname="sandbox.example",
        ident="Durable Agents sandbox",
    )


def _receipt(headers: Message, raw: bytes) -> Receipt:
    run_id, operation = _header(headers, "X-Run-Id"), _header(headers, "X-Operation")
    return Receipt(
        system=MAIL,
        operation=operation if fullmatch(r"[a-z0-9_]{1,64}", operation, ASCII) else SEND_WELCOME,
        idempotency_key=None,
        body_sha256=sha256(raw),
        run_id=run_id if is_run_id(run_id) else None,
        received_at=now(),
    )


def _header(headers: Message, name: str) -> str:
    return str(headers.get(name, "")).strip()


def _keep(
    connection: sqlite3.Connection,
    receipt: Receipt,
    request_id: int,
    envelope: Envelope,
    raw: bytes,
) -> None:
    connection.execute(
        "INSERT INTO messages (mail_from, recipients, subject, run_id, received_at, raw) VALUES (?, ?, ?, ?, ?, ?)",
        (
            storable(envelope.mail_from or ""),
            to_json([storable(recipient) for recipient in envelope.rcpt_tos]),
            subject(raw),
            receipt.run_id,
            receipt.received_at,
            raw,
        ),
    )
    mark_executed(connection, request_id)


def taken(connection: sqlite3.Connection, run_id: str, message_id: str) -> dict[str, list[dict[str, str]]]:
    """Return the run's messages with this Message-ID, so that a sender can look up an unknown outcome."""
    rows = connection.execute("SELECT subject, received_at, raw FROM messages WHERE run_id = ? ORDER BY seq", (run_id,))
    found = [
        {"message_id": message_id, "subject": row["subject"], "received_at": row["received_at"]}
        for row in rows
        if _header(BytesHeaderParser(policy=compat32).parsebytes(row["raw"]), "Message-ID") == message_id
    ]
    return {"results": found}


def subject(raw: bytes) -> str:
    """Return the subject, decoded if possible and otherwise as it was received."""
    headers = BytesHeaderParser(policy=compat32).parsebytes(raw)
    try:
        decoded = str(SMTPUTF8.header_fetch_parse("Subject", _header(headers, "Subject")))
    except Exception:  # the standard library's header parser has raised nearly everything on hostile input
        decoded = _header(headers, "Subject")
    return storable(decoded)[:500]


def storable(value: str) -> str:
    """Return text that SQLite can store. Bytes that aren't UTF-8 arrive as lone surrogates, which are replaced."""
    return value.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def addresses(recipients: str) -> str:
    """Return the stored list of recipients in a readable form."""
    return ", ".join(json.loads(recipients))


def body_text(raw: bytes) -> str:
    """Return the plain text of a stored message, or the whole message if it has no plain text."""
    return storable(_plain_part(raw) or raw.decode("utf-8", "replace")).replace("\r\n", "\n")


def _plain_part(raw: bytes) -> str | None:
    try:
        part = message_from_bytes(raw, policy=default).get_body(preferencelist=("plain",))
        return None if part is None else str(part.get_content())
    except Exception:  # as in subject
        return None
