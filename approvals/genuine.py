"""Whether what a record says was written by one of our processes: asked of every row that is shown as what somebody
did.

Whoever has the application's rights in the database may add rows, and verification finds them, later. What the audit
shows is read by people at once, so it says so at once. One HMAC a row. That a genuine row stands there once is the
database's business: no code can be written twice (ledger/migrations/0001_initial.py), nor can one approval be decided
twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection

from approvals.models import Decision
from ledger.codes import is_rows_code
from ledger.keys import code_key
from ledger.models import NO_RUN, AccountRecord, ActRecord, OverrideRecord, Register, Uncoded
from ledger.web.tally import Counted

_TABLES = {OverrideRecord: "override", ActRecord: "act", Decision: "decision"}
# A record's time is the database's own. What claims a later one would stay on top of every list; what claims one before
# there were any records may be none that anybody can read.
NOT_YET = "statement_timestamp() + interval '1 minute'"
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)

# Per run, and for the records of no run the last one that lacks a code.
_MARKS = f"""
    SELECT run_id, seq, acts FROM {Uncoded._meta.db_table} WHERE run_id = ANY(%s)
    UNION ALL
    SELECT NULL, 0, coalesce(uncoded, 0) FROM {Register._meta.db_table} WHERE {Register._meta.pk.column} = 'acts'"""


def genuine(rows: Iterable[Any]) -> list[bool | None]:
    """For each record whether its code is right; None where it may lack one, being from before there were codes, and
    for accounts, whose records the database writes and the runtime role can't. Asks the database only about rows
    without a code."""
    rows = list(rows)
    marks = _Marks([row for row in rows if not isinstance(row, AccountRecord) and row.code is None])
    return [_is_genuine(row, marks) for row in rows]


def marks_of(rows: Iterable[Any]) -> dict[int, bool | None]:
    rows = list(rows)
    return dict(zip((row.pk for row in rows), genuine(rows), strict=True))


def has_code(row: Decision) -> bool:
    """Whether a decision has a right code, of which nothing is asked: those that have seats are younger than codes."""
    return row.code is not None and is_rows_code(code_key(), "decision", row.coded(), bytes(row.code))


def _is_genuine(row: Any, marks: _Marks) -> bool | None:
    if isinstance(row, AccountRecord):
        return None
    if row.code is None:
        return None if marks.may_lack_code(row) else False
    forms = row.forms if isinstance(row, ActRecord) else (row.coded(),)
    return any(is_rows_code(code_key(), _TABLES[type(row)], form, bytes(row.code)) for form in forms)


class _Marks:
    """Up to where codes may be missing, of the runs that some rows belong to."""

    def __init__(self, rows: list[Any]) -> None:
        runs = set(map(_run_of, rows))
        marks: list[tuple[UUID | None, int, int]] = []
        if rows:
            with connection.cursor() as cursor:
                cursor.execute(_MARKS, [[*runs - {None}, NO_RUN]])
                marks = cursor.fetchall()
        self.of = {run_id: (seq, max(seq, acts)) for run_id, seq, acts in marks if run_id is not None}
        self.placed = next((acts for run_id, _, acts in marks if run_id is None), 0)

    def may_lack_code(self, row: Any) -> bool:
        """As verification has it. Whatever names a place before the first event, or before the first act, is from no
        time."""
        if NO_RUN in self.of:
            return True
        run = _run_of(row)
        if run is None:
            return row.n is not None and 0 < row.n <= self.placed
        events, acts = self.of.get(run, (0, 0))
        if isinstance(row, ActRecord):
            return row.seq is not None and 0 < row.seq <= acts
        return 0 < row.seq < events if row.seq is not None else events > 0


def _run_of(row: Any) -> UUID | None:
    run_id: UUID | None = row.approval.run_id if isinstance(row, Decision) else row.run_id
    return run_id


def out_of_time() -> Counted:
    """Whether some record claims a time that hasn't come, or that was before all records, as a number to be counted no
    further than one."""
    tables = [model._meta.db_table for model in (*_TABLES, AccountRecord)]
    return Counted(
        0, [(f"SELECT 1 FROM {table} WHERE at > {NOT_YET} OR at < %s LIMIT 1", [EARLIEST]) for table in tables]
    )
