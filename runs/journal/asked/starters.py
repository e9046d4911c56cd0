"""The starters of runs, from authenticated events.
For child runs and continuations this is the starter of the topmost ancestor."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from psycopg.rows import TupleRow

from ledger.events import ChildOf, RunCarriedOn, RunCreated
from runs.engine.errors import JournalBroken
from runs.journal.reader import STORED, checked

log = logging.getLogger("runs.policies")
OF_A_RUN = "run:"  # prefix of the starter if that is another run
# The first events of the runs and their ancestors, which name their origin or who started them. Rows are used only to
# find these events.
STATEMENT = f"""
    WITH RECURSIVE up(id, above) AS (
        SELECT id, coalesce(first, parent) FROM runs_run WHERE id = ANY(%s::uuid[])
        UNION SELECT r.id, coalesce(r.first, r.parent) FROM up JOIN runs_run r ON r.id = up.above)
    SELECT e.* FROM up CROSS JOIN LATERAL (
        SELECT {STORED}, run_id FROM ledger_event
        WHERE run_id = up.id AND CASE WHEN up.above IS NULL THEN seq = 1 ELSE seq IN (2, 3) END AND seq <= 3) e"""


def starter_of(run_id: str, rows: Sequence[TupleRow]) -> str | None:
    """Return who started a run, from the rows of STATEMENT; None if that can't be determined."""
    at, seen = UUID(run_id), set[UUID]()
    while at not in seen:
        seen.add(at)
        try:
            events = [checked(at, row[:-1])[1] for row in rows if row[-1] == at]
        except JournalBroken as error:
            log.error("run %s: its starter is unknown: in the journal of %s, %s", run_id, at, error)
            return None
        by = next((event.by for event in events if isinstance(event, RunCreated)), "")
        if by and not by.startswith(OF_A_RUN):
            return by
        carried = next((event.first for event in events if isinstance(event, RunCarriedOn)), "")
        above = carried or next((event.parent for event in events if isinstance(event, ChildOf)), "")
        if not above:
            return None
        at = UUID(above)
    return None
