"""Deletes stored values that nothing refers to any more.

They are left over from transactions that were rolled back, checkpoints that are no longer kept, erased runs, and runs
whose archive was deleted."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from durableagents.contrib.large_values import stores
from durableagents.contrib.large_values.models import Collection
from ledger.clock import database_now
from ledger.codec import REFERENCE, STORED, stored_at
from ledger.erasure import erasure_of
from ledger.verification.archives import archived

log = logging.getLogger("durableagents.contrib.large_values")
# A value younger than this is never deleted: its transaction may not have committed the reference yet.
GRACE = timedelta(days=1)
IS_DUE = "NOT EXISTS (SELECT FROM large_values_collection WHERE at > statement_timestamp() - interval '1 day')"
_BEGIN = f"""
    INSERT INTO large_values_collection (values_deleted, bytes_deleted) SELECT 0, 0 WHERE {IS_DUE} RETURNING id"""
_PLACES = (("ledger_event", "sealed"), ("runs_checkpoint", "state"), ("runs_cachedread", "sealed"))
_REFERRED = " UNION ALL ".join(
    f"SELECT {column} FROM {table} WHERE run_id = %(run)s AND octet_length({column}) = {REFERENCE.size} "
    f"AND substring({column} FOR 1) = %(stored)s"
    for table, column in _PLACES
)


class Deleted(NamedTuple):
    values: int
    bytes: int


def collect_when_due() -> None:
    """Delete unreferenced values, unless a process began to do so within the last day. Raises StoreUnavailable."""
    with connection.cursor() as cursor:
        cursor.execute(_BEGIN)
        begun = cursor.fetchone()
    if begun is not None:
        done = collect()
        Collection.objects.filter(pk=begun[0]).update(values_deleted=done.values, bytes_deleted=done.bytes)


def collect(grace: timedelta = GRACE) -> Deleted:
    """Delete unreferenced values older than `grace`; return their number and size in bytes.

    Values of runs that this database doesn't know are kept, because they may belong to an archive, or to another
    installation with the same store. Raises StoreUnavailable."""
    store = stores.configured()
    if store is None:
        raise stores.Unavailable("no store of large values is set: see DURABLEAGENTS_LARGE_VALUES")
    count = size = 0
    before = database_now() - grace
    for run_id in store.runs():
        old = [(name, bytes_) for name, at, bytes_ in store.values(run_id) if at < before]
        if not old or (referred := _referred(run_id)) is None:
            continue
        for name, bytes_ in old:
            if name not in referred:
                store.delete(run_id, name)
                count, size = count + 1, size + bytes_
    if count:
        log.info("deleted %s values that nothing referred to, %s bytes", count, size)
    return Deleted(count, size)


def _referred(run_id: UUID) -> set[str] | None:
    """Return the names of the values that a run needs; None if this database doesn't know the run."""
    if erasure_of(run_id) is not None:
        return set()  # the run was erased with its key, so nobody can decrypt its values
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM ledger_head WHERE run_id = %s", [run_id])
        if cursor.fetchone() is None:
            found = archived([run_id]).get(run_id)
            return set() if found is not None and found.is_deleted() else None
        cursor.execute(_REFERRED, {"run": run_id, "stored": STORED})
        places = [stored_at(bytes(row[0])) for row in cursor.fetchall()]
    return {place[1].hex() for place in places if place is not None}
