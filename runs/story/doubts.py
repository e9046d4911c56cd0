"""Checks that the events on a page are authentic, because anybody with database access may change rows.
This costs one digest of the content and one HMAC per event. Verification reads whole records instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

from ledger.chain import Link
from ledger.codes import is_authentic, may_lack_code
from ledger.events import decode
from ledger.keys import code_key
from runs.story.lines import EventLine, Stored


def distrust_reason(run_id: UUID, row: Stored) -> str:
    """Return why a stored event can't be trusted; "" if it can."""
    link = Link.of(row)
    body = link.body()
    if not link.is_as_written(body):
        return "it was changed: its content does not match its hash"
    if row.code is None:
        return "" if _may_lack_code(link.clear) else "it has no code: this installation did not write it"
    if not is_authentic(code_key(), run_id, row.seq, body, bytes(row.code)):
        return "it was not written with this installation's key, or not in this run"
    return ""


def _may_lack_code(clear: bytes) -> bool:
    try:
        return may_lack_code(decode(clear, None))
    except (KeyError, TypeError, ValueError, RecursionError):
        return False


def mark_gaps(newest_first: Sequence[EventLine]) -> None:
    """Record, on each event of a part of a journal, which events are missing before it.
    Broken links are recorded too."""
    for line, older in pairwise(newest_first):
        if older.seq + 1 < line.seq:
            first, last = older.seq + 1, line.seq - 1
            line.gap = f"event {first} is missing" if first == last else f"events {first} to {last} are missing"
        elif line.prev_hash != older.hash and not line.damage:
            line.damage = f"it does not link to event {older.seq}"
