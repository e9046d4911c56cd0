"""Verifies the attributes of runs."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from durableagents.contrib.search.models import Attribute
from ledger import events as e
from ledger.verification.runs import EventLine, ReadJournal, at_most_once, compared
from runs.engine.attributes import KINDS
from runs.models import Run


class Attributes:
    """Compares attribute rows with the events that set them."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.set: dict[str, list[tuple[str, str]]] = {}

    def see(self, line: EventLine) -> None:
        event = line.event
        if not isinstance(event, e.AttributesSet):
            return
        self.set |= {name: [] for name in event.named}
        for name, kind, value in zip(event.names, event.kinds, event.values, strict=True):
            self.set.setdefault(name, []).append((kind, value))

    def problems(self) -> Iterator[str]:
        rows = list(self.journal.rows(Attribute, "name", "n"))
        yield from at_most_once("the row of attribute", [(row.name, row.n) for row in rows])
        run = self.journal.row(Run)
        began = None if run is None else run.created_at
        missing = {(name, n): value for name, values in self.set.items() for n, value in enumerate(values)}
        for row in rows:
            what, key = f"attribute {row.name}, value {row.n}", (row.name, row.n)
            if key not in missing:
                yield f"{what} is not in the journal"
                continue
            yield from compared(what, row, _columns(*missing.pop(key)))
            if row.created_at != began:
                yield f"{what}: created_at says {row.created_at.isoformat()}, which differs from the run's start"
        for name, n in missing:
            yield f"attribute {name}, value {n}, has no row"


def _columns(kind: str, value: str) -> dict[str, Any]:
    is_number = kind in KINDS and KINDS[kind].is_number
    return {"kind": kind, "word": None if is_number else value, "number": _number(value) if is_number else None}


def _number(value: str) -> Decimal | str:
    """Return a number in the form in which it is stored. Other text, which matches no row, is returned unchanged."""
    try:
        return Decimal(value)
    except InvalidOperation:
        return value
