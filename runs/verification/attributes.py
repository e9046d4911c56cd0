"""Verification of runs' attributes and tags."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from django.db import connection

from ledger import events as e
from ledger.verification.runs import Line, ReadJournal, at_most_once, compared
from runs.engine.attributes import KINDS
from runs.models import Attribute, Run


class Attributes:
    """Attribute rows against the events that set them."""

    NEEDS_NO_CONTENT = True

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
        rows = list(self.journal.rows(Attribute, "name", "n"))
        yield from at_most_once("the row of attribute", [(row.name, row.n) for row in rows])
        run = self.journal.row(Run)
        began = None if run is None else run.created_at
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
    """Return the number as stored; other text, which fits no row, unchanged."""
    try:
        return Decimal(value)
    except InvalidOperation:
        return value


# Tags that should have a row and don't, or the reverse.
_DIFFERENT = """
    WITH run AS (SELECT id, tags, parent, came_from FROM runs_run WHERE id = %s),
    wanted AS (SELECT runs_tags_of(run.tags) AS tag FROM run
               UNION SELECT t.tag FROM run JOIN runs_runtag t ON t.run_id IN (run.parent, run.came_from)),
    there AS (SELECT t.tag FROM run JOIN runs_runtag t ON t.run_id = run.id)
    SELECT coalesce(wanted.tag, there.tag), there.tag IS NULL FROM wanted FULL JOIN there ON there.tag = wanted.tag
    WHERE wanted.tag IS NULL OR there.tag IS NULL ORDER BY 1 LIMIT 20"""

_MISSING = "it or a run it came from has the tag {tag!r}, but people who see runs by that tag can't see it"
_MORE = "people who see runs by the tag {tag!r} can see it, though neither it nor a run it came from has that tag"


class SeenBy:
    """Tag rows against the run's row and those of its parents and predecessors; the journal has no tags."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal

    def see(self, line: Line) -> None:
        """Do nothing."""

    def problems(self) -> Iterator[str]:
        with connection.cursor() as cursor:
            cursor.execute(_DIFFERENT, [self.journal.run_id])
            for tag, is_missing in cursor.fetchall():
                yield (_MISSING if is_missing else _MORE).format(tag=tag)
