"""Append to the journal from services.

This takes one call of the append function, in the transaction that changes the state. Workers use the step functions in
`runs/sql/`, which call the same function; the head's row lock orders all writes.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.actors import Actor
from ledger.chain import body_hash
from ledger.clock import database_now
from ledger.codec import pack
from ledger.codes import event_code
from ledger.entries import Entry
from ledger.errors import JustificationRequired, NotFound, RecordDamaged
from ledger.events import Event, encode_clear
from ledger.keys import code_key
from ledger.models import ActRecord, Head, OverrideRecord
from ledger.models import Event as Row
from ledger.redacted import masked_key

_hearing: ContextVar[list[dict[str, Any]] | None] = ContextVar("hearing", default=None)
MAX_JUSTIFICATION = 4000
MIN_JUSTIFICATION = 2
# The Hangul fillers: letters according to their Unicode category, but invisible.
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")


_LINE = "ROW(%s, %s, %s, %s, %b, %b, %b)"
_FACT = "ROW(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
# Above this number, rows are passed as columns: each number of rows makes a new statement, and a statement takes at
# most 65,535 parameters.
_MAX_ROWS = 8
_MANY_LINES = """(
    SELECT array_agg(ROW(kind, slot, attempt, fact, clear, sealed, body)::ledger_line ORDER BY n)
    FROM unnest(%b::text[], %b::text[], %b::int[], %b::text[], %b::bytea[], %b::bytea[], %b::bytea[])
    WITH ORDINALITY AS u(kind, slot, attempt, fact, clear, sealed, body, n)
)"""


def lines(events: Sequence[Event], run_id: UUID, after: int) -> tuple[str, list[Any]]:
    """Return events as an SQL expression of type `ledger_line[]`, and its parameters.

    `after` is the seq of the last event known to the writer; each event's code covers the place at which the writer
    therefore expects it. Rows of scalars cost a third of what parallel arrays cost, in Python and in the database.
    """
    key = code_key()
    rows = [_ledger_line(event, key, run_id, place) for place, event in enumerate(events, after + 1)]
    if len(rows) > _MAX_ROWS:
        return _MANY_LINES, [list(column) for column in zip(*rows, strict=True)]
    return f"ARRAY[{', '.join([_LINE] * len(rows))}]::ledger_line[]", [value for row in rows for value in row]


def kept_bytes(values: Sequence[Any]) -> int:
    """Return the number of stored bytes for these `lines` parameters, counted in the same way as in the run's head."""
    assert len(values) % 7 == 0 and len(values) <= 7 * _MAX_ROWS, "rows of seven"
    return sum(len(value or b"") for i, value in enumerate(values) if i % 7 in (4, 5))


def _ledger_line(event: Event, key: bytes, run_id: UUID, place: int) -> tuple[Any, ...]:
    """Return one `ledger_line`.

    The append function splits its body into digest and code (digest ‖ code), since older processes pass only the digest
    during an upgrade.
    """
    clear, packed = encode_clear(event), pack(event.payload, run_id)
    body = body_hash(clear, packed)
    return event.KIND, event.slot, event.attempt, event.fact, clear, packed, body + event_code(key, run_id, place, body)


def facts(entries: Sequence[Entry]) -> tuple[str, list[Any]]:
    """Return ledger facts as an SQL expression of type `ledger_fact[]`, and its parameters."""
    if not entries:
        return "ARRAY[]::ledger_fact[]", []
    values = [value for entry in entries for value in _fact(entry)]
    return f"ARRAY[{', '.join([_FACT] * len(entries))}]::ledger_fact[]", values


def _fact(entry: Entry) -> tuple[Any, ...]:
    return (
        entry.slot,
        entry.attempt,
        entry.fact,
        entry.tool,
        entry.replay_class,
        masked_key(entry.key),  # the intent's payload, which is encrypted, contains the whole key
        entry.input_hash,
        entry.external_id,
        entry.digest,
    )


def append(run_id: UUID, *events: Event, by: Actor, entries: Sequence[Entry] = ()) -> int:
    """Append events in the caller's transaction, under the head's lock. Return the last event's seq."""
    facts_sql, facts_values = facts(entries)
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq FROM ledger_head WHERE run_id = %s FOR UPDATE", [run_id])
        (last,) = cursor.fetchone() or (0,)  # the database function raises an error if the run is missing
        events_sql, events_values = lines(events, run_id, last)
        cursor.execute(
            f"SELECT ledger_append_as(%s, %s, {events_sql}, {facts_sql})",
            [run_id, by.ref, *events_values, *facts_values],
        )
        return int(cursor.fetchone()[0])


def locked_head(run_id: UUID) -> Head:
    """Lock and return the run's head: the first lock of every service. Raises NotFound, RecordDamaged."""
    head = Head.objects.select_for_update().filter(run_id=run_id).first()
    if head is None:
        raise RecordDamaged(run_id, "its head") if is_recorded(run_id) else NotFound("run", run_id)
    return head


def is_recorded(run_id: UUID) -> bool:
    """Return whether the run has any record, even a damaged one."""
    return Head.objects.filter(run_id=run_id).exists() or Row.objects.filter(run_id=run_id).exists()


def mark_of(value: object) -> str:
    """Return a short digest of the values behind a form.

    The client sends the digest back, so that changes are detected.
    """
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:20]


def is_moved(seen: str | None, value: object) -> bool:
    """Return whether the value has changed since the client saw it; False if `seen` is None (nothing to compare)."""
    return seen is not None and seen != mark_of(value)


def justified(action: str, justification: object, *, field: str = "justification") -> str:
    """Return the justification, trimmed.

    Raises JustificationRequired, which names the `field`, if it is missing, blank or too long.
    """
    text = justification.strip() if isinstance(justification, str) else ""
    letters = _letters(text)
    if not letters:
        raise JustificationRequired(action, field=field)
    if letters < MIN_JUSTIFICATION:
        raise JustificationRequired(action, "is too short", field=field)
    if len(text) > MAX_JUSTIFICATION:
        problem = f"is too long: {len(text)} characters of at most {MAX_JUSTIFICATION}"
        raise JustificationRequired(action, problem, field=field)
    if "\x00" in text:
        raise JustificationRequired(action, "contains a NUL character", field=field)
    return text


def is_said(text: str) -> bool:
    return _letters(text) >= MIN_JUSTIFICATION


def _letters(text: str) -> int:
    return sum(map(_is_read, text))


def _is_read(character: str) -> bool:
    """Return whether a character is readable, so that it counts in a justification: a visible letter or digit."""
    return unicodedata.category(character)[0] in "LN" and character not in _BLANK_LETTERS


def override(
    head: Head, action: str, *, by: Actor, justification: str, before: dict[str, Any], after: dict[str, Any]
) -> OverrideRecord:
    """Record a person's override of the run, with the exact state that it acted on."""
    record = OverrideRecord(
        run_id=head.run_id,
        action=action,
        by=by.ref,
        person=by.person,
        role=by.role,
        auth=by.auth,
        address=by.address,
        justification=justification,
        seq=head.seq,
        chain=bytes(head.chain),
        before=before,
        after=after | _of_batch(by),
        at=database_now(),
    )
    record.seal()
    record.save(force_insert=True)
    return record


@contextmanager
def hearing() -> Iterator[list[dict[str, Any]]]:
    """Collect the records that `acted` writes inside the block, in order: action, subject, queue, before, after."""
    heard: list[dict[str, Any]] = []
    token = _hearing.set(heard)
    try:
        yield heard
    finally:
        _hearing.reset(token)


def acted(
    action: str,
    *,
    by: Actor,
    head: Head | None = None,
    subject: str = "",
    queue: str = "",
    justification: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    at: datetime | None = None,
    is_systems: bool = False,
) -> None:
    """Record a person's act with the exact state of the run.

    Acts of the system are recorded only if they change people's settings (`is_systems`). `at` saves a query when the
    caller has just read the database's clock.
    """
    if not (by.is_person or by.auth == "shell" or is_systems):
        return
    record = ActRecord(
        run_id=head.run_id if head else None,
        action=action,
        subject=subject,
        queue=queue,
        by=by.ref,
        person=by.person,
        role=by.role,
        auth=by.auth,
        address=by.address,
        justification=justification,
        seq=head.seq if head else None,
        chain=bytes(head.chain) if head else None,
        before=before or {},
        after=(after or {}) | _of_batch(by),
        at=at or database_now(),
    )
    if head is None:
        record.n, record.prev_hash = _next_place("acts")
    record.seal()
    record.save(force_insert=True)
    if (heard := _hearing.get()) is not None:
        heard.append({name: getattr(record, name) for name in ("action", "subject", "queue", "before", "after")})


def _of_batch(by: Actor) -> dict[str, Any]:
    return {"batch": by.batch} if by.batch else {}


def _next_place(register: str) -> tuple[int, bytes]:
    """Return number and previous hash of the register's next record. Later callers wait for this transaction to end."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT n, chain FROM ledger_next(%s)", [register])
        n, chain = cursor.fetchone() or (0, b"")
    return n + 1, bytes(chain)
