"""The oracle's table: every request with its sender, and which one of them executed each effect."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_RUN_ID = re.compile(r"[\x21-\x7e]{1,200}")
_SENDER = re.compile(r"[0-9]{1,10} [0-9]{1,12}\.[0-9]{1,9}")
_MAX_WAY_SECONDS = 600.0

# Built by SQLite itself, outside Python's lock: a hundred thousand rows must not stop the requests that are being
# answered.
_AS_JSON = """
SELECT COALESCE(json_group_array(json_object(
    'id', id, 'system', system, 'operation', operation, 'idempotency_key', idempotency_key, 'body_sha256', body_sha256,
    'run_id', run_id, 'received_at', received_at, 'sender', sender, 'sent_at', sent_at, 'executed', json(CASE executed WHEN 1 THEN 'true' ELSE 'false' END)
)), '[]') FROM (SELECT * FROM requests WHERE :run_id IS NULL OR run_id = :run_id ORDER BY id)
"""


@dataclass(frozen=True)
class Receipt:
    """Facts about a request that are noted before it has any effect."""

    system: str
    operation: str
    idempotency_key: str | None
    body_sha256: str | None
    run_id: str | None
    received_at: str
    sender: int | None = None
    sent_at: str | None = None

    def record(self, connection: sqlite3.Connection) -> int:
        cursor = connection.execute(
            "INSERT INTO requests (system, operation, idempotency_key, body_sha256, run_id, received_at, sender, sent_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self.system,
                self.operation,
                self.idempotency_key,
                self.body_sha256,
                self.run_id,
                self.received_at,
                self.sender,
                self.sent_at,
            ),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid


def sender_of(header: str | None) -> tuple[int | None, str | None]:
    """Return the sender's pid and the time of sending on its monotonic clock, from `X-Sender`.

    Processes of one machine share that clock. Return (None, None) for a header of another machine or an invalid one.
    """
    if header is None or not _SENDER.fullmatch(header):
        return None, None
    pid, sent = header.split(" ")
    under_way = time.monotonic() - float(sent)
    if not 0 <= under_way <= _MAX_WAY_SECONDS:
        return None, None
    return int(pid), _stamp(datetime.now(UTC) - timedelta(seconds=under_way))


def mark_executed(connection: sqlite3.Connection, request_id: int) -> None:
    """Mark a request as executed. Call this in the transaction that changes the state."""
    connection.execute("UPDATE requests SET executed = 1 WHERE id = ?", (request_id,))


def as_json(connection: sqlite3.Connection, run_id: str | None = None) -> bytes:
    text = connection.execute(_AS_JSON, {"run_id": run_id}).fetchone()[0]
    return str(text).encode()


def is_run_id(value: str) -> bool:
    return _RUN_ID.fullmatch(value) is not None


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def now() -> str:
    return _stamp(datetime.now(UTC))


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
