"""How large a run's journal is, and whether that is more than a run should go on with."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from ledger.models import Head
from runs.engine.succession.declared import LARGE_BYTES, LARGE_JOURNAL
from runs.models import ENDED, Run

# Beyond so many events their bytes are not added up: the number says enough.
_MOST_ADDED = 100_000
_BYTES = """
    SELECT coalesce(sum(octet_length(clear) + coalesce(octet_length(sealed), 0)), 0)
    FROM ledger_event WHERE run_id = %s"""


@dataclass(frozen=True, slots=True)
class Size:
    """A journal's events and their bytes as they are stored (None: not added up). `is_large`: of a run that has not
    ended, more than it should go on with."""

    events: int
    bytes: int | None
    is_large: bool


def size_of(run: Run, head: Head, *, added: bool = False) -> Size:
    """The size of a run's journal; with `added`, its bytes too, which takes a look at each event."""
    stored = _bytes(run.pk) if added and head.seq <= _MOST_ADDED else None
    is_much = head.seq >= LARGE_JOURNAL or (stored or 0) >= LARGE_BYTES
    return Size(head.seq, stored, is_much and run.state not in ENDED)


def _bytes(run_id: UUID) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_BYTES, [run_id])
        return int(cursor.fetchone()[0])
