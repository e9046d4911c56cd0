"""Check that shown records are authentic, by one HMAC per row: anybody with the application's database rights may add
rows, and people read the audit before verification runs."""

# That an authentic row exists only once is up to the database: no code can be written twice
# (ledger/migrations/0001_initial.py), nor can one approval be decided twice.

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
# Records have the database's time: a future one would stay on top of every list, and a very old one may be unreadable.
NOT_YET = "statement_timestamp() + interval '1 minute'"
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)

# By run, and for records without a run the last one that may lack a code.
_MARKS = f"""
    SELECT run_id, seq, acts FROM {Uncoded._meta.db_table} WHERE run_id = ANY(%s)
    UNION ALL
    SELECT NULL, 0, coalesce(uncoded, 0) FROM {Register._meta.db_table} WHERE {Register._meta.pk.column} = 'acts'"""


def genuine(rows: Iterable[Any]) -> list[bool | None]:
    """Return for each record whether its code is valid; None if it may lack one: from before codes, and account
    records, which the database writes. Queries only for rows without a code."""
    rows = list(rows)
    marks = _Marks([row for row in rows if not isinstance(row, AccountRecord) and row.code is None])
    return [_is_genuine(row, marks) for row in rows]


def marks_of(rows: Iterable[Any]) -> dict[int, bool | None]:
    rows = list(rows)
    return dict(zip((row.pk for row in rows), genuine(rows), strict=True))


def has_code(row: Decision) -> bool:
    """Return whether a decision has a valid code. Decisions with seats are newer than codes, so none may lack it."""
    return row.code is not None and is_rows_code(code_key(), "decision", row.coded(), bytes(row.code))


def _is_genuine(row: Any, marks: _Marks) -> bool | None:
    if isinstance(row, AccountRecord):
        return None
    if row.code is None:
        return None if marks.may_lack_code(row) else False
    forms = row.forms if isinstance(row, ActRecord) else (row.coded(),)
    return any(is_rows_code(code_key(), _TABLES[type(row)], form, bytes(row.code)) for form in forms)


class _Marks:
    """The events up to which codes may be missing, in the rows' runs."""

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
        """Return whether a row may lack its code, as in verification: never before the first event or act."""
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
    """Return a count, at most one, of records with a future time or one before all records."""
    tables = [model._meta.db_table for model in (*_TABLES, AccountRecord)]
    return Counted(
        0, [(f"SELECT 1 FROM {table} WHERE at > {NOT_YET} OR at < %s LIMIT 1", [EARLIEST]) for table in tables]
    )
