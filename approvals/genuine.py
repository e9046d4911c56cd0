"""Whether what a record says was written by one of our processes: asked of every row that is shown as what somebody did.

Whoever has the application's rights in the database may add rows, and verification finds them, later. What the audit shows is read by
people at once, so it says so at once. One HMAC a row. A genuine row that was copied is left to verification.
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

_TABLES = {OverrideRecord: "override", ActRecord: "act", Decision: "decision"}
# A record's time is the database's own. What claims a later one would stay on top of every list; what claims one before there were any
# records may be none that anybody can read.
NOT_YET = "statement_timestamp() + interval '1 minute'"
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)


def genuine(rows: Iterable[Any]) -> list[bool | None]:
    """For each record whether its code is right; None where it may lack one, being from before there were codes, and for accounts, whose
    records the database writes and the runtime role can't. Asks the database only about rows without a code."""
    rows = list(rows)
    marks = _Marks([row for row in rows if not isinstance(row, AccountRecord) and row.code is None])
    return [_is_genuine(row, marks) for row in rows]


def _is_genuine(row: Any, marks: _Marks) -> bool | None:
    if isinstance(row, AccountRecord):
        return None
    if row.code is None:
        return None if marks.may_lack_code(row) else False
    forms = [row.coded(), row.coded(is_placed=False)] if isinstance(row, ActRecord) else [row.coded()]
    return any(is_rows_code(code_key(), _TABLES[type(row)], form, bytes(row.code)) for form in forms)


class _Marks:
    """Up to where codes may be missing, of the runs that some rows belong to."""

    def __init__(self, rows: list[Any]) -> None:
        runs = set(map(_run_of, rows))
        found = Uncoded.objects.filter(run_id__in=[run for run in {*runs, NO_RUN} if run]).values_list("run_id", "seq", "acts") if rows else ()
        self.of = {run_id: (seq, max(seq, acts)) for run_id, seq, acts in found}
        self.placed = Register.objects.filter(pk="acts").values_list("uncoded", flat=True).first() or 0 if None in runs else 0

    def may_lack_code(self, row: Any) -> bool:
        """As verification has it."""
        if NO_RUN in self.of:
            return True
        run = _run_of(row)
        if run is None:
            return row.n is not None and row.n <= self.placed
        events, acts = self.of.get(run, (0, 0))
        if isinstance(row, ActRecord):
            return row.seq is not None and row.seq <= acts
        return row.seq < events if row.seq is not None else events > 0


def _run_of(row: Any) -> UUID | None:
    found: UUID | None = row.approval.run_id if isinstance(row, Decision) else row.run_id
    return found


def are_any_out_of_time() -> bool:
    """Whether some record claims a time that hasn't come, or that was before all records."""
    each = (f"EXISTS (SELECT 1 FROM {model._meta.db_table} WHERE at > {NOT_YET} OR at < %(earliest)s)" for model in (*_TABLES, AccountRecord))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {' OR '.join(each)}", {"earliest": EARLIEST})
        return bool(cursor.fetchone()[0])
