"""Build API rows from journals and verification results, without secrets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import BinaryField, QuerySet
from django.db.models.functions import Length, Substr

from ledger import events
from ledger.api.schemas import EventRow, ListRow, OverrideRow, VerificationRow
from ledger.codec import MAX_DEEP, Cut, is_too_deep, read_json, size_of, unpack, unpack_head
from ledger.erasure import Erased
from ledger.models import Event, OverrideRecord
from ledger.redacted import MASK as MASK
from ledger.redacted import masked_text, without_redacted
from ledger.verification.registers import Listed
from ledger.verification.runs import Verification
from ledger.web.seeing.payloads import is_open

MAX_PROBLEMS = 200
# Larger values are left out of JSON answers; clients fetch them from a separate URL.
MAX_INLINE = 16 * 1024 * 1024
_COLUMNS = ("kind", "slot", "attempt")


def event_row(event: Event, *, is_read: bool = True) -> EventRow:
    """Return an event's row, with its payload if the caller may read it.

    A damaged event is marked as damaged, so that it doesn't hide the rest of the journal.
    """
    clear: dict[str, Any] = {}
    content: dict[str, Any]
    try:
        clear = _clear_of(event)
        if event.sealed is not None and size_of(event.sealed) > MAX_INLINE:
            payload_of(event, is_head=True)  # raises if the payload was erased
            content = {"payload": None, "omitted": True}
        else:
            content = {"payload": content_of(event)}
        if (content["payload"] is not None or "omitted" in content) and not (is_read or is_open(event.kind)):
            content = {"payload": None, "hidden": True}
    except Erased:
        content = {"payload": None, "hidden": True, "erased": True}
    except (ValueError, RecursionError) as error:
        content = {"payload": None, "damage": str(error)}
    return EventRow.of(
        event,
        data={name: value for name, value in clear.items() if name not in _COLUMNS},
        hash=bytes(event.hash).hex(),
        prev_hash=bytes(event.prev_hash).hex(),
        **content,
    )


def content_of(event: Event) -> Any:
    """Return the payload in the form for lists, even if it is large.

    Raises ValueError or RecursionError for altered bytes.
    """
    return without_redacted(event.kind, _clear_of(event), payload_of(event))


def _clear_of(event: Event) -> dict[str, Any]:
    """Return the clear metadata. Raises ValueError for altered bytes."""
    clear = read_json(bytes(event.clear))
    if not isinstance(clear, dict):
        raise ValueError("the event's clear bytes are not an object")
    _must_be_shallow(clear)
    return clear


def _must_be_shallow(value: Any) -> None:
    if is_too_deep(value):
        raise ValueError(f"nested deeper than {MAX_DEEP} levels")


def payload_of(event: Event, *, is_head: bool = False) -> Any:
    """Return the payload, or the head of a large one, without callback tokens.

    Raises ValueError or RecursionError on bytes that were tampered with.
    """
    payload = unpack_head(event.sealed) if is_head else unpack(event.sealed)
    _must_be_shallow(payload)
    if event.kind == events.ApprovalRequested.KIND:
        return payload  # a plan is shown byte for byte, since decisions bind it; it contains no token
    if event.kind == events.ToolInvoked.KIND and isinstance(payload, dict) and payload.get("callback_token"):
        payload = {**payload, "callback_token": MASK}
    return masked(payload)


def masked(value: Any) -> Any:
    """Return the value without the tokens of callback addresses, and with masked idempotency keys."""
    if isinstance(value, dict):
        return {name: masked(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner) for inner in value]
    if isinstance(value, str) and (text := masked_text(value)) is not value:
        return Cut(text, value.size) if isinstance(value, Cut) else text
    return value


def payload_shown(event: Event) -> Any:
    """Return the payload for a list, or the reason why it can't be read."""
    try:
        return payload_of(event)
    except (ValueError, RecursionError) as error:
        return {"unreadable": str(error)}


def sizes_of(events: QuerySet[Event]) -> dict[tuple[UUID, int], int]:
    """Return the size in bytes of each event's payload, as JSON, by run and number, without reading the payloads."""
    head = Substr("sealed", 1, 20, output_field=BinaryField())
    rows = events.annotate(head=head, stored=Length("sealed")).values_list("run_id", "seq", "head", "stored")
    return {(run, seq): 0 if stored is None else size_of(bytes(head), stored) for run, seq, head, stored in rows}


def larger_than(most: float, places: Sequence[tuple[UUID, int]]) -> frozenset[UUID]:
    """Return the runs whose event in `places`, pairs of (run, seq), has a payload larger than `most` bytes."""
    if not places or most == math.inf:
        return frozenset()
    sizes = sizes_of(Event.objects.filter(pk__in=list(places)))
    return frozenset(run for (run, _), size in sizes.items() if size > most)


def payload_at(places: Sequence[tuple[UUID, int]]) -> dict[UUID, Any]:
    """Return the payloads of single events by run, in one query. `places` holds pairs of (run, seq)."""
    if not places:
        return {}
    rows = Event.objects.filter(pk__in=list(places)).only("run_id", "seq", "kind", "sealed")
    return {event.run_id: payload_shown(event) for event in rows}


def override_row(record: OverrideRecord) -> OverrideRow:
    return OverrideRow.of(record, chain=bytes(record.chain).hex())


def verification_row(verification: Verification) -> VerificationRow:
    return VerificationRow.of(verification, chain=verification.head_hash, **_verdict(verification.problems))


def list_row(listed: Listed) -> ListRow:
    return ListRow.of(listed, chain=listed.hash, **_verdict(listed.problems))


def _verdict(problems: list[str]) -> dict[str, Any]:
    return {"holds": not problems, "problems": problems[:MAX_PROBLEMS], "problem_count": len(problems)}
