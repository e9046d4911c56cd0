"""Check that displayed records are authentic, with one HMAC per row.

Anybody with the application's database rights may add rows, and people read the audit list before verification runs.
"""

# The database ensures that an authentic row exists only once: no code can be written twice
# (ledger/migrations/0001_initial.py), nor can one approval be decided twice.

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from approvals.models import Decision
from ledger.models import AccountRecord, ActRecord, OverrideRecord
from ledger.web.tally import Counted

_RECORDS = (OverrideRecord, ActRecord, Decision, AccountRecord)
# Records are timestamped by the database. A future time would stay on top of every list, and a very old one may be
# unreadable.
NOT_YET = "statement_timestamp() + interval '1 minute'"
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)


def authentic(rows: Iterable[Any]) -> list[bool | None]:
    """Return for each record whether its code is valid; None for account records, which the database writes."""
    return [None if isinstance(row, AccountRecord) else row.is_authentic for row in rows]


def marks_of(rows: Iterable[Decision]) -> dict[int, bool]:
    return {row.pk: row.is_authentic for row in rows}


def out_of_time() -> Counted:
    """Return a count that stops at the first record whose time is in the future or before any record could exist."""
    tables = [model._meta.db_table for model in _RECORDS]
    return Counted(
        0, [(f"SELECT 1 FROM {table} WHERE at > {NOT_YET} OR at < %s LIMIT 1", [EARLIEST]) for table in tables]
    )
