"""Keyed codes: who lacks the installation's key can't add to the record what the engine would believe. Pure: no Django,
no I/O.

    key    = hmac( master key, "ledger code v1" )
    mac    = hmac( key, "event" ‖ run ‖ place ‖ body )       body is the digest that the chain hashes (see chain.py)
    code   = 1 ‖ place ‖ mac                                 41 bytes, stored beside the event

`place` is where the writer, as far as it knew the journal, expected the event to stand. Others may have written in
between, so it stands there or further on: never before. That, the run's id, and that no code is ever used twice, is
what keeps a genuine event from being copied into another run, written once more, or moved up over one that was taken
away.

The chain needs no key and says whether anything was changed since; the code needs the key and says who wrote.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from ledger.events import Event, WaitResolved

_VERSION = b"\x01"
LENGTH = 41
# What functions in the database write, which has no key. Neither makes anybody send anything: a claim tells who drives,
# and what a signal taken brings stands in the event of its coming, which has a code.
SQL_MADE = frozenset({"RunClaimed", "SignalTaken"})
# So does the end of a wait that its time has passed. Nothing more than what moving its deadline, which no code covers,
# would bring about.
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


def event_code(key: bytes, run_id: UUID, place: int, body: bytes) -> bytes:
    """The code of an event that its writer expects at `place` of a run's journal."""
    at = place.to_bytes(8, "big")
    return _VERSION + at + hmac.digest(key, b"event" + run_id.bytes + at + body, "sha256")


def is_genuine(key: bytes, run_id: UUID, seq: int, body: bytes, code: bytes) -> bool:
    """Whether somebody with the key wrote this event for this run, and it doesn't stand before where it was written."""
    place = place_of(code)
    return place is not None and place <= seq and hmac.compare_digest(event_code(key, run_id, place, body), code)


def place_of(code: bytes) -> int | None:
    """Where the writer expected the event; None for what is no code."""
    return int.from_bytes(code[1:9], "big") if len(code) == LENGTH and code[:1] == _VERSION else None


def row_code(key: bytes, table: str, values: Mapping[str, Any]) -> bytes:
    """The code of a row that isn't an event: of all its values, under the table's name. Values are texts, numbers,
    JSON."""
    text = json.dumps([table, dict(values)], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return _VERSION + hmac.digest(key, b"row" + text.encode(), "sha256")


def number_text(value: Decimal | None) -> str | None:
    """A number of six decimals as codes cover it: as the database gives it back, where no zero has a sign."""
    text = None if value is None else f"{value:.6f}"
    return "0.000000" if text == "-0.000000" else text


def plain_zero(value: Decimal) -> Decimal:
    return value if value else value.copy_abs()


def is_rows_code(key: bytes, table: str, values: Mapping[str, Any], code: bytes) -> bool:
    return hmac.compare_digest(row_code(key, table, values), code)
