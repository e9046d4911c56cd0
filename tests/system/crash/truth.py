"""A person's knowledge of an unknown call, by the oracle's record and the ledger's. Imports no app code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def key_on_record(key: str | None) -> str | None:
    """Return the part of an idempotency key that the ledger has, without what would let its reader use it."""
    return key[:11] + "…" if key is not None and key.startswith("da-") and len(key) == 43 else key


def denials(events: Iterable[Row]) -> list[Row]:
    """Return the verdicts that a call has not happened; the ledger only has the fact of one."""
    return [e for e in events if e["kind"] == "ToolReconciled" and e["data"]["verdict"] == "did_not"]


def refuted(events: Iterable[Row]) -> set[tuple[str, int]]:
    return {(e["slot"], e["attempt"]) for e in denials(events)}


def has_happened(slot: str, attempt: int, ledger: Iterable[Row], events: Iterable[Row], effects: Iterable[Row]) -> bool:
    """Return whether the call's effect exists: by its key or, without one, as one more than accounted for."""
    entries = list(ledger)
    call = next(e for e in entries if e["fact"] == "pending" and (e["slot"], e["attempt"]) == (slot, attempt))
    done = [row for row in effects if row["executed"]]
    if call["key"] is not None:
        return any(key_on_record(row["idempotency_key"]) == call["key"] for row in done)
    matching = (e for e in entries if e["tool"] == call["tool"] and e["fact"] in ("committed", "reconciled"))
    known = {(e["slot"], e["attempt"]) for e in matching} - refuted(events)
    return sum(row["operation"] == call["tool"] for row in done) > len(known)
