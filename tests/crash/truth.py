"""What a person finds out about a call in doubt, by the oracle's record and the ledger's. Knows nothing of the app."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def has_happened(slot: str, attempt: int, ledger: Iterable[Row], effects: Iterable[Row]) -> bool:
    """Whether the call's effect is there: under its key, or, where it has none, as one more than is accounted for."""
    entries = list(ledger)
    call = next(e for e in entries if e["fact"] == "pending" and (e["slot"], e["attempt"]) == (slot, attempt))
    done = [row for row in effects if row["executed"]]
    if call["key"] is not None:
        return any(row["idempotency_key"] == call["key"] for row in done)
    known = {(e["slot"], e["attempt"]) for e in entries if e["tool"] == call["tool"] and _is_done(e)}
    return sum(row["operation"] == call["tool"] for row in done) > len(known)


def _is_done(entry: Row) -> bool:
    return entry["fact"] == "committed" or (entry["fact"] == "reconciled" and entry["digest"] != "did_not")
