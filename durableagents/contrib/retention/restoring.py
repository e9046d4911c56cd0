"""Restores the rows of archived runs exactly as they were."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection, transaction

from durableagents.contrib.retention import places, policies, register
from durableagents.contrib.retention.archiving import _LOCK, Stays, _clear, entries_of
from durableagents.contrib.retention.files import Reader
from durableagents.contrib.retention.models import Archive, Pending, Restoration
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import SUPERUSER, account_of, holds
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, NotFound, first_line
from ledger.models import Head
from ledger.verification.archives import ArchiveDamaged, ArchivedRun
from ledger.web.roles import OPERATOR

_CHUNK = 500


class NotArchived(DurableAgentsError):
    """The run is not archived, so there is nothing to restore."""

    status, code, title = 409, "not-archived", "Not archived"


class RestoreRefused(DurableAgentsError):
    """The archive can't be restored exactly."""

    status, code, title = 409, "restore-refused", "The archive can't be restored"


def restore(run_id: UUID, *, by: Actor, justification: str) -> list[UUID]:
    """Restore a run with all runs in its archive; return their ids. The run's retention period begins again.

    Raises NotArchived, NotFound, RestoreRefused, StorageUnavailable, Forbidden, JustificationRequired."""
    if by.auth != "shell" and by.role != OPERATOR and not holds(account_of(by), SUPERUSER):
        raise Forbidden("Only an operator or an administrator may restore a run.")
    why = justified("retention_restore", justification)
    try:
        found = register.find(run_id)
    except NotFound:
        if Head.objects.filter(pk=run_id).exists():
            raise NotArchived(f"Run {run_id} is in the database: there is nothing to restore.") from None
        raise
    if (at := register.deleted_at(found)) is not None:
        raise NotArchived(f"The archive of run {run_id} was deleted on {at:%Y-%m-%d} by a policy.")
    for pending in Pending.objects.filter(run_id__in=[row.run_id for row in entries_of(found.family)]):
        _clear(pending.run_id)
    try:
        return _restore(found, by, why)
    except ArchiveDamaged as error:
        raise RestoreRefused(f"{str(error).capitalize()}. Nothing was restored.") from error
    except DatabaseError as error:
        raise RestoreRefused(f"The rows don't fit the database: {first_line(error)}. Nothing was restored.") from error


def archived(run_ids: Collection[UUID]) -> Mapping[UUID, ArchivedRun]:
    """Return which of the runs are archived, for erasure and for the verification of runs and seals."""
    return {
        run_id: ArchivedRun(
            row.seq,
            bytes(row.chain),
            hashes=partial(register.hashes, row),
            verify=partial(register.verify, row),
            is_deleted=partial(register.is_deleted, row),
            restore=partial(_restore_for, run_id),
            lay_out=partial(_lay_out, row),
        )
        for run_id, row in register.archived_entries(run_ids).items()
    }


def _restore_for(run_id: UUID, by: Actor, why: str) -> object:
    return restore(run_id, by=by, justification=why)


def _lay_out(row: Archive) -> None:
    """Insert the rows of one archived run in the caller's transaction, which is rolled back.

    Raises RestoreRefused, StorageUnavailable, ArchiveDeleted."""
    if (at := register.deleted_at(row)) is not None:
        raise register.ArchiveDeleted(row, at)
    try:
        if Pending.objects.filter(run_id=row.run_id).exists():
            _clear(row.run_id)
        with places.opened(row.place) as source:
            reader = Reader(row.place, source, bytes(row.digest))
            columns = _put_all(reader, only=row.run_id)
        register.check(row, reader)
        _compare(row, columns)
    except ArchiveDamaged as error:
        raise RestoreRefused(f"{str(error).capitalize()}.") from error
    except DatabaseError as error:
        raise RestoreRefused(f"The rows don't fit the database: {first_line(error)}.") from error


@transaction.atomic
def _restore(found: Archive, by: Actor, why: str) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '10min'")
        cursor.execute(f"SELECT pg_try_advisory_xact_lock({_LOCK})", [str(found.family)])
        if not cursor.fetchone()[0]:
            raise Stays("Another process is archiving or restoring the run at the moment. Try again.")
    rows = {row.run_id: row for row in entries_of(found.family)}
    if found.run_id not in rows:
        raise NotArchived(f"Run {found.run_id} was restored meanwhile.")
    with places.opened(found.place) as source:
        reader = Reader(found.place, source, bytes(found.digest))
        columns = _put_all(reader)
    for row in rows.values():
        register.check(row, reader)
        _compare(row, columns)
        policies.store(Restoration(archive=row, reason=why, by=by.ref, at=database_now()))
    acted(
        "retention_restore",
        by=by,
        subject=f"run {found.run_id}",
        justification=why,
        before={"archive": found.place},
        after={"runs": len(rows)},
    )
    return sorted(rows)


def _put_all(reader: Reader, *, only: UUID | None = None) -> dict[str, frozenset[str]]:
    """Insert all rows of an archive, or only those of one run; return the columns of the rows by table."""
    columns: dict[str, frozenset[str]] = {}
    batch: list[str] = []
    place: tuple[UUID, str] | None = None
    is_first = True
    for run_id, table, text in reader.read():
        if only is not None and run_id != only:
            continue
        if (run_id, table) != place or len(batch) >= _CHUNK:
            _write_batch(place, batch, is_first)
            is_first, batch = (run_id, table) != place, []
            place = run_id, table
        columns.setdefault(table, frozenset(json.loads(text)))
        batch.append(text)
    _write_batch(place, batch, is_first)
    return columns


def _write_batch(place: tuple[UUID, str] | None, batch: list[str], is_first: bool) -> None:
    if place is not None and batch:
        with connection.cursor() as cursor:
            cursor.execute("SELECT retention_put(%s, %s, %s, %s)", [*place, batch, is_first])


def _compare(row: Archive, columns: dict[str, frozenset[str]]) -> None:
    """Compare the restored rows with the checksums that were recorded when the rows were removed. Raises
    RestoreRefused.

    Only their number is compared if a later release has changed the table's columns."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT t.name, retention_sum(%s, t.name)::text FROM retention_runtable t", [row.run_id])
        for table, text in cursor.fetchall():
            now = json.loads(text)
            before: list[Any] = (row.rows or {}).get(table, [0, "0"])
            is_same_shape = columns.get(table) in (None, _columns(table))
            if now != before if is_same_shape else now[0] != before[0]:
                raise RestoreRefused(
                    f"Table {table} can't store the rows of run {row.run_id} unchanged. Nothing was restored."
                )


def _columns(table: str) -> frozenset[str]:
    with connection.cursor() as cursor:
        return frozenset(each.name for each in connection.introspection.get_table_description(cursor, table))
