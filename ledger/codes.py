"""Keyed codes: without the installation's key nobody can add an event that the engine accepts.

Pure: no Django, no I/O.
"""

#  key    = hmac( master key, "ledger code v1" )
#  mac    = hmac( key, "event" ‖ run ‖ place ‖ body )       body is the digest that the chain hashes (see chain.py)
#  code   = 1 ‖ place ‖ mac                                 41 bytes, stored with the event
#
# `place` is the seq that the writer expected for the event. Other writers may have come in between, so the event has
# that seq or a later one, never an earlier one. This rule, the run's id, and the uniqueness of codes prevent an
# authentic event from being copied into another run, repeated, or moved up to replace a deleted one.
#
# The chain needs no key and shows whether anything was changed; the code needs the key and shows who wrote it.

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from ledger.events import Event, WaitResolved

_VERSION = b"\x01"
LENGTH = 41
# These kinds are written by database functions, which have no key. They can't cause a call: a claim names the worker,
# and a taken signal's content is in its SignalReceived event, which has a code.
SQL_MADE = frozenset({"RunClaimed", "SignalTaken"})
# The same holds for timeouts of waits: forging one achieves no more than changing its deadline, which no code covers.
_TIMED = frozenset(
    {
        ("timer", "fired"),
        ("signal", "timed_out"),
        ("input", "timed_out"),
        ("message", "timed_out"),
        ("pool", "let_in"),
    }
)


def may_lack_code(event: Event) -> bool:
    if isinstance(event, WaitResolved):
        return event.by == "system:sweeper" and (event.wait, event.resolution) in _TIMED
    return event.KIND in SQL_MADE


def derived(master: bytes) -> bytes:
    return hmac.digest(master, b"ledger code v1", "sha256")


def derived_for_words(master: bytes) -> bytes:
    """Return the key for digests of search words.

    It differs from the key for codes, so that digests can't pass as codes.
    """
    return hmac.digest(master, b"search word v1", "sha256")


def mac(key: bytes, message: bytes) -> bytes:
    """Return `hmac.digest(key, message, "sha256")` in a third of the time; the key stays in memory."""
    keyed = _keyed(key).copy()
    keyed.update(message)
    return keyed.digest()


@lru_cache(maxsize=16)
def _keyed(key: bytes) -> hmac.HMAC:
    return hmac.new(key, digestmod="sha256")


def event_code(key: bytes, run_id: UUID, place: int, body: bytes) -> bytes:
    """Return the code of an event that its writer expects at `place` of a run's journal."""
    at = place.to_bytes(8, "big")
    return _VERSION + at + mac(key, b"event" + run_id.bytes + at + body)


def is_authentic(key: bytes, run_id: UUID, seq: int, body: bytes, code: bytes) -> bool:
    """Return whether a key holder wrote this event for this run, and its place is not before the expected one."""
    place = place_of(code)
    return place is not None and place <= seq and hmac.compare_digest(event_code(key, run_id, place, body), code)


def place_of(code: bytes) -> int | None:
    """Return the place that the writer expected; None if this is not a code."""
    return int.from_bytes(code[1:9], "big") if len(code) == LENGTH and code[:1] == _VERSION else None


def row_code(key: bytes, table: str, values: Mapping[str, Any]) -> bytes:
    """Return the code of a row that is not an event, from its table's name and its values (texts, numbers, JSON)."""
    text = json.dumps([table, dict(values)], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return _VERSION + mac(key, b"row" + text.encode())


def number_text(value: Decimal | None) -> str | None:
    """Return a number with six decimals in the form that codes cover: as in the database, without a negative zero."""
    text = None if value is None else f"{value:.6f}"
    return "0.000000" if text == "-0.000000" else text


def plain_zero(value: Decimal) -> Decimal:
    return value if value else value.copy_abs()


def is_rows_code(key: bytes, table: str, values: Mapping[str, Any], code: bytes) -> bool:
    return hmac.compare_digest(row_code(key, table, values), code)
