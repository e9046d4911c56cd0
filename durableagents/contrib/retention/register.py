"""The register of archives: which runs are archived, in which file, and what the file contains."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.urls import reverse

from durableagents.contrib.retention import places
from durableagents.contrib.retention.files import EVENTS, Reader
from durableagents.contrib.retention.models import Archive, CheckpointExpiry, Pending, Restoration
from ledger import events as e
from ledger.chain import Link
from ledger.codec import unpack
from ledger.codes import SQL_MADE, is_authentic, may_lack_code
from ledger.erasure import Erased, Erasure, erasure_of
from ledger.errors import DurableAgentsError, NotFound
from ledger.keys import code_key
from ledger.models import Event
from ledger.rows import row_of
from ledger.verification.archives import ArchiveDamaged
from ledger.verification.registers import Listed
from ledger.verification.runs import UNREADABLE, Verification
from ledger.web.seeing.viewers import viewer
from runs.features import ExpiredCheckpoints

_IN_FORCE = """
    SELECT a.* FROM retention_archive a
    WHERE a.run_id = ANY (%s) AND NOT EXISTS (SELECT FROM retention_restoration r WHERE r.archive_id = a.id)
      AND NOT EXISTS (SELECT FROM retention_archive b WHERE b.run_id = a.run_id AND b.id > a.id)"""
_BATCH = 500


class RunArchived(DurableAgentsError):
    """The run's rows are in an archive."""

    status, code, title = 410, "archived", "The run is archived"
    page_label = "Open the archived run"

    def __init__(self, row: Archive) -> None:
        erasure = erasure_of(row.run_id)
        super().__init__(
            f"Run {row.run_id} was archived on {row.at:%Y-%m-%d} by policy {row.policy}. "
            + (f"{erasure}. The rest" if erasure else "It")
            + " It can be read, and an administrator can erase it. For anything else, restore it: `Restore run` on "
            "its page, or "
            f"`manage.py retention restore {row.run_id} --reason …`.",
            archive=reverse("api-archived-run", args=[row.run_id]),
        )
        self.page = reverse("archived_run", args=[row.run_id])


class ArchiveDeleted(DurableAgentsError):
    """The run's archive was deleted by a policy."""

    status, code, title = 410, "archive-deleted", "The run was deleted"
    page_label = "Open the register's entry"

    def __init__(self, row: Archive, at: datetime) -> None:
        super().__init__(
            f"Run {row.run_id} was archived on {row.at:%Y-%m-%d}, and its archive was deleted on {at:%Y-%m-%d}. "
            "Only the register entry is left.",
            archive=reverse("api-archived-run", args=[row.run_id]),
        )
        self.page = reverse("archived_run", args=[row.run_id])


def archived_entries(run_ids: Collection[UUID]) -> dict[UUID, Archive]:
    """Return the entries of all given runs that are archived, including those whose archive was deleted.

    Entries that this installation didn't write are ignored."""
    rows = Archive.objects.raw(_IN_FORCE, [list(run_ids)])
    return {row.run_id: row for row in rows if row.is_authentic}


def find(run_id: UUID) -> Archive:
    """Return the entry of an archived run that the viewer may see. Raises NotFound."""
    row = archived_entries([run_id]).get(run_id)
    if row is None or not viewer().sees(row.creator, row.tags or ()):
        raise NotFound("archived run", run_id)
    return row


def deleted_at(row: Archive) -> datetime | None:
    found = getattr(row, "deletion", None)
    return found.at if found is not None and found.is_authentic else None


def explain(run_id: UUID) -> DurableAgentsError | None:
    """Return an error that says where a missing run's rows are; None if the viewer finds no such archived run."""
    try:
        row = find(run_id)
    except NotFound:
        return None
    at = deleted_at(row)
    return RunArchived(row) if at is None else ArchiveDeleted(row, at)


def rows_of(row: Archive) -> Iterator[tuple[str, str]]:
    """Yield table and row text of all rows of a run in its archive. Raises ArchiveDamaged, StorageUnavailable."""
    with places.opened(row.place) as source:
        reader = Reader(row.place, source, bytes(row.digest))
        for run_id, table, text in reader.read():
            if run_id == row.run_id:
                yield table, text
    check(row, reader)


def check(row: Archive, reader: Reader) -> None:
    """Compare an archive, after reading it, with the run's entry. Raises ArchiveDamaged."""
    if reader.runs.get(row.run_id) != (row.seq, bytes(row.chain)):
        raise ArchiveDamaged(
            f"the archive {row.place} has a last event of run {row.run_id} that differs from the register"
        )
    counts = {table: count for table, (count, _) in (row.rows or {}).items() if count}
    found = {table: count for table, count in reader.counts.get(row.run_id, {}).items() if count}
    if counts != found:
        raise ArchiveDamaged(f"the archive {row.place} has rows of run {row.run_id} that differ from the register")


def events_of(row: Archive) -> Iterator[Event]:
    """Yield the run's events from its archive. Raises what `rows_of` raises."""
    for table, text in rows_of(row):
        if table == EVENTS:
            yield row_of(Event, text)


def expired_checkpoints(run_id: UUID) -> ExpiredCheckpoints | None:
    """Return which of a run's checkpoints policies have removed. Entries that this installation didn't write are
    ignored, so the verification reports those checkpoints as missing."""
    rows = [row for row in CheckpointExpiry.objects.filter(run_id=run_id).order_by("pk") if row.is_authentic]
    if not rows:
        return None
    last = rows[-1]
    return ExpiredCheckpoints(
        last_seq=max(row.last_seq for row in rows),
        number=sum(row.number for row in rows),
        policy=last.policy,
        at=last.at,
    )


# --- for the core's verification --------------------------------------------------------------------------------------


def is_deleted(row: Archive) -> bool:
    return deleted_at(row) is not None


def hashes(row: Archive) -> dict[int, bytes] | None:
    if deleted_at(row) is not None:
        return None
    try:
        return {event.seq: bytes(event.hash) for event in events_of(row)}
    except places.StorageUnavailable as error:
        raise ArchiveDamaged(f"the archive {row.place} can't be compared with the register: {error}") from error


def verify(row: Archive) -> Verification:
    """Verify an archived run: the file, its digests, the events' chain and codes, and the entry in the register."""
    if (at := deleted_at(row)) is not None:
        return Verification(row.run_id, 0, row.created_at, at, bytes(row.chain).hex(), [])
    problems: list[str] = []
    count, first, end = 0, None, None
    try:
        for event in events_of(row):
            count, first, end = count + 1, first or event.at, event
            problems += _event_problems(row.run_id, event)
    except (ArchiveDamaged, places.StorageUnavailable) as error:
        problems.append(str(error))
    erasure = erasure_of(row.run_id)
    if end is not None:
        problems += _erasure_problems(end, erasure)
    problems += _strays([row])
    notes = [f"{erasure}. Its hash chain and codes were checked"] if erasure else []
    last = end.at if end is not None else None
    return Verification(row.run_id, count, first, last, bytes(row.chain).hex(), problems, notes)


def _erasure_problems(end: Event, erasure: Erasure | None) -> Iterator[str]:
    """Yield the differences between an archived run's last event and the register of erasures."""
    if end.kind != e.ContentErased.KIND:
        if erasure is not None:
            yield "the erasure register names it, but its last event is not an erasure"
        return
    try:
        event = e.decode(bytes(end.clear))
    except UNREADABLE:
        return  # this problem is reported with the event
    values = (event.by, event.reason, end.at) if isinstance(event, e.ContentErased) else None
    if erasure is None:
        yield f"event {end.seq}, ContentErased, has no entry in the erasure register"
    elif values != (erasure.by, erasure.reason, erasure.at):
        yield f"event {end.seq}, ContentErased, differs from the erasure register"


def _payload(sealed: Any) -> Any:
    """Return an event's payload; None if its erasure is recorded. Raises ValueError."""
    try:
        return unpack(sealed)
    except Erased:
        return None


def _event_problems(run_id: UUID, row: Event) -> Iterator[str]:
    try:
        event = e.decode(bytes(row.clear), _payload(row.sealed))
    except UNREADABLE as error:
        yield f"event {row.seq} can't be read: {type(error).__name__}: {error}"
        return
    code = None if row.code is None else bytes(row.code)
    body = Link.of(row).body()
    if code is None:
        if not may_lack_code(event):
            yield f"event {row.seq}, {event.KIND}, has no code: this installation did not write it"
    elif event.KIND in SQL_MADE or not is_authentic(code_key(), run_id, row.seq, body, code):
        yield f"event {row.seq}, {event.KIND}, was not written with this installation's key, or is in the wrong place"


_REMAINS = """
    SELECT u.id FROM unnest(%s::uuid[]) u (id)
    WHERE EXISTS (SELECT FROM ledger_head h WHERE h.run_id = u.id) OR EXISTS (SELECT FROM runs_run r WHERE r.id = u.id)
       OR (EXISTS (SELECT FROM ledger_event e WHERE e.run_id = u.id)
           AND NOT EXISTS (SELECT FROM retention_pending p WHERE p.run_id = u.id))"""


def _strays(rows: Collection[Archive]) -> list[str]:
    """Return a problem for each archived run that also has rows in the database."""
    with connection.cursor() as cursor:
        cursor.execute(_REMAINS, [[row.run_id for row in rows]])
        return [f"run {run_id} is archived, but also has rows in the database" for (run_id,) in cursor.fetchall()]


def _file_problem(rows: list[Archive]) -> str:
    """Return the problem with the file that these entries name; empty if there is none."""
    try:
        with places.opened(rows[0].place) as source:
            reader = Reader(rows[0].place, source, bytes(rows[0].digest))
            for _ in reader.read():
                pass
        for row in rows:
            check(row, reader)
    except (ArchiveDamaged, places.StorageUnavailable) as error:
        return str(error)
    return ""


def _unavailable() -> str:
    """Return why no archive can be read; empty if archives can be read."""
    try:
        places.storage()
    except places.StorageUnavailable as error:
        return str(error)
    return ""


def every_archived_run() -> Listed | None:
    """Check the register of archives and each file (record check of `ledger verify --all`).

    Returns None if there are no archives."""
    total, problems = 0, list[str]()
    after, away, unread = 0, _unavailable(), 0
    while batch := list(Archive.objects.filter(pk__gt=after).select_related("deletion").order_by("pk")[:_BATCH]):
        after, total = batch[-1].pk, total + len(batch)
        problems += [
            f"{row}, entry {row.pk}, was not written by this installation" for row in batch if not row.is_authentic
        ]
        current = archived_entries([row.run_id for row in batch])
        rows = [row for row in batch if current.get(row.run_id) == row]
        problems += _strays(rows)
        for place in dict.fromkeys(row.place for row in rows if deleted_at(row) is None):
            if away:
                unread += 1
            elif problem := _file_problem([row for row in rows if row.place == place]):
                problems.append(problem)
    if unread:
        problems.append(f"{unread} archive(s) can't be read: {away}")
    restored = Restoration.objects.count()
    problems += [f"the restoration of archive {row.pk} was not written by this installation" for row in _forged()]
    pending = Pending.objects.count()
    if not total and not restored:
        return None
    return Listed("archived runs" + (f" ({pending} still being removed)" if pending else ""), total, "", problems)


def every_expiry() -> Listed | None:
    """Check the register of expired checkpoints (record check of `ledger verify --all`). Returns None if it is empty.

    The check of each run compares its entries with what is missing."""
    total, problems = 0, list[str]()
    for row in CheckpointExpiry.objects.order_by("pk").iterator(chunk_size=_BATCH):
        total += 1
        if not row.is_authentic:
            problems.append(f"{row}, entry {row.pk}, was not written by this installation")
    return Listed("expiries of checkpoints", total, "", problems) if total else None


def _forged() -> list[Any]:
    return [row for row in Restoration.objects.iterator(chunk_size=_BATCH) if not row.is_authentic]
