"""What runs took back of what they did, for others that would go on from that, or be given it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from uuid import UUID

from django.db import connection
from psycopg.rows import TupleRow

from ledger.events import RunForked
from runs.engine.errors import JournalBroken
from runs.engine.forks.evidence import Place, Undoing
from runs.journal.reader import COLUMNS, EVENTS, IS_OLD, checked, forked_in

log = logging.getLogger("runs.journal.postgres")
TAKEN_BACK = f"""
    SELECT {", ".join(COLUMNS)}, {IS_OLD}, run_id FROM ledger_event WHERE run_id = ANY(%s::uuid[])
    AND kind IN ('UndoAsked', 'UndoBegun', 'EffectUndone', 'EffectLeft') ORDER BY run_id, seq"""
_AFTER_ALL = 2**62


def taken_back(rows: Sequence[TupleRow], places: Collection[Place]) -> set[Place]:
    """Which of these effects were undone, are about to be, or may have been, by the rows of TAKEN_BACK of their runs.
    Of a run of which one can't be believed that is all of them."""
    by_run: dict[str, Undoing | None] = {}
    for *row, run_id in rows:
        back = by_run.setdefault(str(run_id), Undoing())
        try:
            event = checked(run_id, row)[1]  # type: ignore[arg-type]
        except JournalBroken as broken:
            log.warning("run %s: what it undid can't be read, so all of it counts as undone: %s", run_id, broken)
            by_run[str(run_id)] = None
            continue
        if back is not None:
            back.see(event)
    return {place for place in places if place[0] in by_run and _is_back(by_run[place[0]], *place[1:])}


def _is_back(back: Undoing | None, slot: str, attempt: int) -> bool:
    return back is None or back.is_begun or (slot, attempt) in back.all


def forked_of(run_id: UUID) -> RunForked | None:
    """What tells of a fork whose fork it is; None for a run that is none. Raises JournalBroken."""
    with connection.cursor() as cursor:
        cursor.execute(EVENTS, [run_id, _AFTER_ALL])
        return forked_in(run_id, cursor.fetchall())
