"""What a run is found by: the rows are what its journal set last, no more and no less."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from ledger import events as e
from ledger.verification.runs import Line, ReadJournal, at_most_once, compared
from runs.engine.attributes import KINDS
from runs.models import Attribute, Run


class Attributes:
    """Rows against the events that set them."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.set: dict[str, list[tuple[str, str]]] = {}

    def see(self, line: Line) -> None:
        event = line.event
        if not isinstance(event, e.AttributesSet):
            return
        self.set |= {name: [] for name in event.named}
        for name, kind, value in zip(event.names, event.kinds, event.values, strict=True):
            self.set.setdefault(name, []).append((kind, value))

    def problems(self) -> Iterator[str]:
        rows = list(Attribute.objects.filter(run_id=self.journal.run_id).order_by("name", "n"))
        yield from at_most_once("the row of attribute", [(row.name, row.n) for row in rows])
        began = Run.objects.filter(pk=self.journal.run_id).values_list("created_at", flat=True).first()
        missing = {(name, n): value for name, values in self.set.items() for n, value in enumerate(values)}
        for row in rows:
            what, key = f"attribute {row.name}, value {row.n}", (row.name, row.n)
            if key not in missing:
                yield f"{what} is nothing that the journal set"
                continue
            yield from compared(what, row, _columns(*missing.pop(key)))
            if row.created_at != began:
                yield f"{what}: created_at says {row.created_at.isoformat()}, which is not when the run began"
        for name, n in missing:
            yield f"attribute {name}, value {n}, has no row"


def _columns(kind: str, value: str) -> dict[str, Any]:
    is_number = kind in KINDS and KINDS[kind].is_number
    return {"kind": kind, "word": None if is_number else value, "number": _number(value) if is_number else None}


def _number(value: str) -> Decimal | str:
    """As the database has it; what is no number fits no row."""
    try:
        return Decimal(value)
    except InvalidOperation:
        return value
