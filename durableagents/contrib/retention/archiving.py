"""Archives runs that are due, deletes archives that are due, and removes old checkpoints that are due.

A file is written, flushed and read back before the transaction that records it and removes the rows. If the process is
killed at any point, each run is still complete either in the database or in its archive, and the next round finishes or
cleans up."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection, transaction

from durableagents.contrib.retention import holds, places, policies, register
from durableagents.contrib.retention.files import Part, Reader, Writer
from durableagents.contrib.retention.models import Archive, CheckpointExpiry, Deletion, Pending, Round, RunTable
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, first_line
from ledger.models import Head
from ledger.verification.archives import ArchiveDamaged
from ledger.verification.runs import NO_RUN
from runs import failpoints, features

log = logging.getLogger("retention")
MAX_FAMILY = 1000
CLEAR_ROWS = 5000  # rows removed in one transaction
_ROOTS = 200
_REFUSED = "DA080"
# Files up to this size are kept in memory until they are stored.
_IN_MEMORY = 8 * 1024 * 1024
_LOCK = "hashtextextended('retention ' || %s, 89)"
_ROW_CHUNK = 500
MAX_PROBLEMS = 100


class Stays(DurableAgentsError):
    """The run can't be archived or deleted now, for the reason given."""

    status, code, title = 409, "run-stays", "The run stays"


class ClockBehind(DurableAgentsError):
    """The database's clock shows a time before the last recorded archiving or removal."""

    status, code, title = 409, "clock-behind", "The database's clock was set back"


@dataclass
class Progress:
    """The result of a round.

    `archived` and `deleted` count runs, and `expired` counts runs that lost their old checkpoints. `notes` say what
    would be done, or why a run that is due is kept."""

    archived: int = 0
    deleted: int = 0
    expired: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def report(self, problem: str) -> None:
        log.warning("%s", problem)
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


def run(*, limit: int | None = None, is_dry: bool = False) -> Progress:
    """Archive up to `limit` runs that are due, remove old checkpoints of up to `limit` runs, and delete archives that
    are due; with `is_dry` only list them.

    The round is stored with its problems, even if it is aborted. If the database role may not remove anything, that is
    a problem; a dry run then lists what the owner's role would remove. Raises StorageUnavailable, ClockBehind,
    Stays."""
    progress = Progress()
    try:
        _go_through(progress, limit, is_dry)
    except DurableAgentsError as error:
        # For example, the disk is full. The round is stored with what was done so far and the reason.
        progress.report(str(error))
        if not is_dry:
            _keep(progress)
        raise
    if not is_dry:
        _keep(progress)
    return progress


def _keep(progress: Progress) -> None:
    Round.objects.create(
        at=database_now(),
        archived=progress.archived,
        deleted=progress.deleted,
        expired=progress.expired,
        problems=progress.problems,
    )


def _go_through(progress: Progress, limit: int | None, is_dry: bool) -> None:
    check_register()
    if forbidden := _forbidden():
        progress.report(f"Nothing can be removed: {forbidden}")
    # Checkpoints need no storage, and go first: a full archive must not keep them.
    for run_id in due_checkpoints(for_owner=bool(forbidden)) if is_dry or not forbidden else ():
        if limit is not None and progress.expired >= limit:
            break
        if is_dry:
            progress.expired += 1
            progress.notes.append(f"remove old checkpoints of run {run_id}")
            continue
        _guarded(progress, _expire, run_id)
    if not places.is_set() and {row.archive_days for row in policies.in_force()} <= {None}:
        return  # nothing is ever archived
    places.storage()
    if not is_dry:
        finish(progress)
    for root in due_roots() if is_dry or not forbidden else ():
        if limit is not None and progress.archived >= limit:
            break
        if is_dry:
            members = family_of(root)
            if refusal_of(root, members, for_owner=bool(forbidden)) is None:
                progress.archived += len(members)
                progress.notes.append(f"archive run {root}" + (f" with {len(members) - 1} more" * (len(members) > 1)))
            continue
        _guarded(progress, _archive_family, root)
    for family in due_archives(for_owner=bool(forbidden)) if is_dry or not forbidden else ():
        if is_dry:
            progress.deleted += 1
            progress.notes.append(f"delete the archive of run {family}")
            continue
        _guarded(progress, _delete_family, family)


def run_when_due() -> None:
    """Run a round as a job in a worker. If it fails, it is tried again in an hour."""
    try:
        run()
    except DurableAgentsError as error:
        log.error("the round was given up: %s", error)


def _guarded(progress: Progress, act: Any, family: UUID) -> None:
    """Process one family of runs. Its problems don't stop the others.

    Raises StorageUnavailable, because that affects all families."""
    try:
        act(family, progress)
    except places.StorageUnavailable:
        raise
    except (DurableAgentsError, ArchiveDamaged) as error:
        text = str(error)
        progress.report(text if text.startswith("run ") else f"run {family}: {text}")


def _forbidden() -> str | None:
    """Return why this database role may not remove anything; None if it may."""
    found: str | None = _rows("SELECT retention_forbids(NULL)")[0][0]
    return found


def check_register() -> None:
    """Check that the rules were written by this installation, and that the clock was not set back.

    Raises Stays, ClockBehind."""
    if names := [str(row) for row in policies.forged()] + [f"the lifting of hold {row.pk}" for row in holds.forged()]:
        raise Stays(
            f"Nothing is removed: {', '.join(names[:5])} was not written by this installation. "
            "Ask the database's owner to remove it."
        )
    archived = Archive.objects.order_by("-at").values_list("at", flat=True).first()
    expired = CheckpointExpiry.objects.order_by("-pk").values_list("at", flat=True).first()
    now = database_now()
    last = max(archived or now, expired or now)
    if last > now + timedelta(minutes=1):
        raise ClockBehind(
            f"The database's clock says {now:%Y-%m-%d %H:%M}, and something was last removed at "
            f"{last:%Y-%m-%d %H:%M}. Nothing was archived or deleted. Set the clock, or wait for that time."
        )


# --- archiving --------------------------------------------------------------------------------------------------------


def due_roots() -> Iterator[UUID]:
    """Yield runs that are due and did not originate in another run, such as a parent."""
    days = [row.archive_days for row in policies.in_force() if row.archive_days is not None]
    if not days:
        return
    before, after = database_now() - timedelta(days=min(days)), NO_RUN
    while rows := _rows("SELECT id, refusal FROM retention_roots(%s, %s, %s)", [after, before, _ROOTS]):
        after = rows[-1][0]
        yield from (root for root, refusal in rows if refusal is None)


def family_of(root: UUID) -> list[UUID]:
    return [row[0] for row in _rows("SELECT id FROM retention_family(%s, %s) id ORDER BY id", [root, MAX_FAMILY + 1])]


def refusal_of(root: UUID, members: Sequence[UUID], *, for_owner: bool = False) -> str | None:
    """Return why a family is kept; None if all of its runs are due and no feature needs any of them.

    With `for_owner`, the rights of this database role are ignored."""
    if len(members) > MAX_FAMILY:
        return f"run {root} is kept: it has more than {MAX_FAMILY} related runs"
    text = "SELECT id, coalesce(retention_refusal(id), CASE WHEN NOT %s THEN retention_forbids(%s) END) "
    ended = database_now() if not members else _oldest_end(members)
    for run_id, why in _rows(text + "FROM unnest(%s::uuid[]) id", [for_owner, ended, list(members)]):
        why = why or features.removal_refusal(run_id)
        if why:
            return f"run {root} stays" + (f" with run {run_id}" if run_id != root else "") + f": {why}"
    return None


def _oldest_end(members: Sequence[UUID]) -> datetime | None:
    rows = _rows("SELECT max(ended_at) FROM runs_run WHERE id = ANY (%s)", [list(members)])
    found: datetime | None = rows[0][0]
    return found


def _archive_family(root: UUID, progress: Progress) -> None:
    """Archive a run and all runs that began in it, unless another process is archiving them.

    Raises StorageUnavailable, ArchiveDamaged, Stays."""
    entries = _written(root, progress)
    if not entries:
        return
    failpoints.hit("RP2", run=str(root))
    try:
        with transaction.atomic():
            _execute(f"SELECT pg_advisory_xact_lock({_LOCK})", [str(root)])
            if not Head.objects.filter(pk=root).exists():
                return  # another process has archived it in the meantime
            _execute("SET LOCAL lock_timeout = '5s'")
            for entry in entries:
                policies.store(entry)
            _execute("SELECT retention_take(%s)", [root])
            failpoints.hit("RP3", run=str(root))
    except DatabaseError as error:
        _drop_file(root, entries[0].place)
        raise Stays(first_line(error)) from error
    progress.archived += len(entries)
    failpoints.hit("RP4", run=str(root))
    for entry in entries:
        _clear(entry.run_id)


@transaction.atomic
def _drop_file(root: UUID, name: str) -> None:
    """Delete the file of a family that was not archived after all, unless the register names it."""
    _execute(f"SELECT pg_advisory_xact_lock({_LOCK})", [str(root)])
    if not Archive.objects.filter(place=name).exists():
        places.remove(name)


@transaction.atomic
def _written(root: UUID, progress: Progress) -> list[Archive]:
    """Write the family's file from one snapshot and read it back.

    Return the entries to record; empty if the family is kept."""
    _execute(
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL idle_in_transaction_session_timeout = '10min'; "
        "SET LOCAL statement_timeout = '10min'; SET LOCAL timezone = 'UTC'"
    )
    if not _rows(f"SELECT pg_try_advisory_xact_lock({_LOCK})", [str(root)])[0][0]:
        return []  # another process is archiving it
    members = family_of(root)
    if (why := refusal_of(root, members)) is not None:
        progress.notes.append(why)
        return []
    for left_over in Pending.objects.filter(run_id__in=members):
        _drop_left(left_over.run_id)
    heads = {head.run_id: head for head in Head.objects.filter(pk__in=members)}
    tables = list(RunTable.objects.order_by("n"))
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        try:
            writer = Writer(file, root, {run: (head.seq, bytes(head.chain)) for run, head in heads.items()})
            sums = {run: _write_run(writer, run, tables) for run in members}
            digest = writer.close()
        except OSError as error:
            raise places.StorageUnavailable(
                f"The archive of run {root} can't be written in the folder for temporary files: "
                f"{error.strerror or error}."
            ) from error
        failpoints.hit("RP1", run=str(root))
        name = f"{root.hex[-2:]}/{root}-{digest.hex()[:32]}.ndjson.zst"
        places.put(name, file, digest)
    entries = [_entry(run, root, heads[run], sums[run], name, digest, writer.size) for run in members if run in heads]
    if len(entries) < len(members):
        raise Stays("a run of the family has no head: `manage.py ledger verify` names it")
    with places.opened(name) as source:
        reader = Reader(name, source, digest)
        for _ in reader.read():
            pass
    for entry in entries:
        register.check(entry, reader)
    return entries


def _write_run(writer: Writer, run_id: UUID, tables: Sequence[RunTable]) -> dict[str, list[Any]]:
    """Write a run's rows table by table; return the sums of each table."""
    sums: dict[str, list[Any]] = {}
    for table, found in _rows(
        "SELECT t.name, retention_sum(%s, t.name)::text FROM retention_runtable t ORDER BY t.n", [run_id]
    ):
        count, total = _pair(found)
        if count:
            sums[table] = [count, total]
    for table in tables:
        if table.name not in sums:
            continue
        rows = _row_texts(table, run_id, sums[table.name][0])
        if writer.add(Part(run_id, table.name, rows)) != sums[table.name][0]:
            raise Stays(f"table {table.name} returned a different number of rows than were counted")
    return sums


def _pair(found: str) -> tuple[int, str]:
    count, total = found.strip("[]").split(", ")
    return int(count), total.strip('"')


def _row_texts(table: RunTable, run_id: UUID, count: int) -> Iterator[str]:
    """Yield a run's rows as JSON texts, in the order of the table's key, with only a few in memory at a time."""
    condition = table.condition.replace("$1", "%s")
    with connection.cursor() if count <= _ROW_CHUNK else connection.chunked_cursor() as cursor:
        cursor.execute(
            f"SELECT row_to_json(t)::text FROM {connection.ops.quote_name(table.name)} t WHERE {condition} "
            f"ORDER BY {table.ordering}",
            [run_id],
        )
        while rows := cursor.fetchmany(_ROW_CHUNK):
            yield from (text for (text,) in rows)


def _entry(
    run_id: UUID, root: UUID, head: Head, sums: dict[str, list[Any]], name: str, digest: bytes, size: int
) -> Archive:
    agent, version, state, creator, created_at, ended_at = _rows(
        "SELECT agent, version, state, creator, created_at, ended_at FROM runs_run WHERE id = %s", [run_id]
    )[0]
    tags, effects, key, policy = _rows(
        "SELECT f.tags, f.effects, f.business_key, p.policy "
        "FROM retention_facts(%s) f, retention_policy_of(%s, 'archive') p",
        [run_id, run_id],
    )[0]
    return Archive(
        run_id=run_id,
        family=root,
        agent=agent,
        version=version,
        state=state,
        creator=creator,
        tags=sorted(tags),
        effects=sorted(effects),
        business_key=key,
        created_at=created_at,
        ended_at=ended_at,
        seq=head.seq,
        chain=bytes(head.chain),
        rows=sums,
        policy=policy,
        place=name,
        digest=digest,
        size=size,
        at=database_now(),
    )


# --- expiry of checkpoints --------------------------------------------------------------------------------------------

_CHECKPOINTS = """
    SELECT r.id, CASE WHEN (SELECT count(*) FROM (SELECT FROM runs_checkpoint c WHERE c.run_id = r.id LIMIT 2) x) < 2
        THEN 'it has no old checkpoints'
        ELSE coalesce(retention_due_refusal(r.id, 'checkpoints'),
                      CASE WHEN NOT %s THEN retention_forbids(r.ended_at) END) END
    FROM (SELECT id, ended_at FROM runs_run WHERE id > %s AND ended_at <= %s ORDER BY id LIMIT %s) r ORDER BY r.id"""


def due_checkpoints(*, for_owner: bool = False) -> Iterator[UUID]:
    """Yield runs with more than one checkpoint whose old checkpoints are due to be removed.

    With `for_owner`, it doesn't matter what this database role may remove."""
    days = [row.checkpoint_days for row in policies.in_force() if row.checkpoint_days is not None]
    if not days:
        return
    before, after = database_now() - timedelta(days=min(days)), NO_RUN
    while rows := _rows(_CHECKPOINTS, [for_owner, after, before, _ROOTS]):
        after = rows[-1][0]
        yield from (run_id for run_id, refusal in rows if refusal is None and features.removal_refusal(run_id) is None)


def _expire(run_id: UUID, progress: Progress) -> None:
    """Remove all checkpoints of a run but the newest, in batches, each with its entry in the register.

    Raises Stays."""
    number = _expire_batch(run_id)
    progress.expired += number > 0
    while number >= CLEAR_ROWS:
        number = _expire_batch(run_id)


def _expire_batch(run_id: UUID) -> int:
    """Return the number of checkpoints removed; 0 if another process removes them or a hold was placed.

    Raises Stays."""
    try:
        with transaction.atomic():
            _execute("SET LOCAL lock_timeout = '5s'")
            _execute(f"SELECT pg_advisory_xact_lock_shared({holds.LOCK})")
            if not _rows(f"SELECT pg_try_advisory_xact_lock({_LOCK})", [str(run_id)])[0][0]:
                return 0
            found = _rows(
                "SELECT o.last_seq, o.number, p.policy "
                "FROM retention_old_checkpoints(%s, %s) o, retention_policy_of(%s, 'checkpoints') p",
                [run_id, CLEAR_ROWS, run_id],
            )
            if not found or features.removal_refusal(run_id) is not None:
                return 0
            last_seq, number, policy = found[0]
            row = CheckpointExpiry(run_id=run_id, last_seq=last_seq, number=number, policy=policy, at=database_now())
            policies.store(row)
            _execute("SELECT retention_expire(%s)", [row.pk])
            failpoints.hit("RP7", run=str(run_id))
            return int(number)
    except DatabaseError as error:
        raise Stays(first_line(error)) from error


# --- what is left over ------------------------------------------------------------------------------------------------


def finish(progress: Progress) -> None:
    """Remove what is still left: rows of archived runs, files of deleted archives, earlier files of erased runs."""
    for pending in Pending.objects.order_by("run_id").iterator(chunk_size=_ROW_CHUNK):
        row = register.archived_entries([pending.run_id]).get(pending.run_id)
        try:
            if row is None:
                _drop_left(pending.run_id)
            elif register.deleted_at(row) is not None:
                _forget(row)
            else:
                _clear(pending.run_id)
        except DurableAgentsError as error:
            progress.report(str(error))


def _clear(run_id: UUID) -> None:
    """Remove the rows of an archived run from the largest tables, in batches. Raises Stays."""
    removed = CLEAR_ROWS
    while removed >= CLEAR_ROWS:
        try:
            removed = _rows("SELECT retention_clear(%s, %s)", [run_id, CLEAR_ROWS])[0][0]
        except DatabaseError as error:
            raise Stays(first_line(error)) from error
        failpoints.hit("RP5", run=str(run_id))


# --- deleting archives ------------------------------------------------------------------------------------------------

_OLD = """
    SELECT DISTINCT a.family FROM retention_archive a
    WHERE a.at <= %s AND NOT EXISTS (SELECT FROM retention_deletion d WHERE d.archive_id = a.id)
      AND NOT EXISTS (SELECT FROM retention_restoration r WHERE r.archive_id = a.id) AND a.family > %s
    ORDER BY a.family LIMIT %s"""
_MAY_GO = """
    SELECT a.run_id,
        coalesce(retention_delete_refusal(a.run_id), CASE WHEN NOT %s THEN retention_forbids(a.ended_at) END)
    FROM retention_archive a WHERE a.id = ANY (%s)"""


def due_archives(*, for_owner: bool = False) -> Iterator[UUID]:
    """Yield families whose archive is due for deletion, which requires that each run in it is due.

    With `for_owner`, the rights of this database role are ignored."""
    days = [row.delete_days for row in policies.in_force() if row.delete_days is not None]
    if not days:
        return
    before, after = database_now() - timedelta(days=min(days)), NO_RUN
    while rows := _rows(_OLD, [before, after, _ROOTS]):
        after = rows[-1][0]
        yield from (family for (family,) in rows if _archives_may_go(family, for_owner=for_owner))


def entries_of(family: UUID) -> list[Archive]:
    """Return the entries of all runs of the family that are archived now."""
    runs = list(Archive.objects.filter(family=family).values_list("run_id", flat=True).distinct())
    return [row for row in register.archived_entries(runs).values() if row.family == family]


def _archives_may_go(family: UUID, *, for_owner: bool = False) -> bool:
    rows = entries_of(family)
    refusals = [why for _, why in _rows(_MAY_GO, [for_owner, [row.pk for row in rows]])]
    return bool(rows) and not any(refusals) and not any(features.removal_refusal(row.run_id) for row in rows)


def _delete_family(family: UUID, progress: Progress) -> None:
    """Record that a family's archive is deleted, then delete the file and the runs' keys.

    Raises StorageUnavailable, Stays."""
    with transaction.atomic():
        _execute(f"SELECT pg_advisory_xact_lock_shared({holds.LOCK})")
        if not _rows(f"SELECT pg_try_advisory_xact_lock({_LOCK})", [str(family)])[0][0]:
            return  # another process is deleting it
        if not _archives_may_go(family):
            return
        rows, now = entries_of(family), database_now()
        for row in rows:
            policy = _rows("SELECT policy FROM retention_policy_of(%s, 'delete')", [row.run_id])[0][0]
            policies.store(Deletion(archive=row, policy=policy, at=now))
            Pending.objects.create(run_id=row.run_id, at=now)
    progress.deleted += len(rows)
    failpoints.hit("RP6", run=str(family))
    for row in rows:
        _forget(row)


# Selects the files of a run that no archived run needs: the file of its deleted archive, and the files from which it
# was restored.
_LEFT = """
    SELECT DISTINCT a.place FROM retention_archive a WHERE a.run_id = %s AND NOT EXISTS (
        SELECT FROM retention_archive b WHERE b.family = a.family AND b.place = a.place
            AND NOT EXISTS (SELECT FROM retention_restoration r WHERE r.archive_id = b.id)
            AND NOT EXISTS (SELECT FROM retention_deletion d WHERE d.archive_id = b.id))"""


def _forget(row: Archive) -> None:
    """Delete all files and the key of a run whose archive is recorded as deleted. Raises StorageUnavailable, Stays."""
    for place in {row.place} | _runs_left(row.run_id):
        places.remove(place)
    try:
        _execute("SELECT retention_forget(%s)", [row.run_id])
    except DatabaseError as error:
        raise Stays(first_line(error)) from error


def _runs_left(run_id: UUID) -> set[str]:
    return {place for (place,) in _rows(_LEFT, [run_id])}


# --- erased runs ------------------------------------------------------------------------------------------------------


def drop_earlier_files(run_ids: Collection[UUID]) -> None:
    """After the commit of an erasure, delete the files from which the runs were once restored (`Feature.on_erased`).

    These files contain people's input in unencrypted form. If one can't be deleted, each round tries again. Raises
    StorageUnavailable before the commit, so that the erasure is refused."""
    had_files = [run_id for run_id in run_ids if _runs_left(run_id)]
    if not had_files:
        return
    places.storage()
    now = database_now()
    Pending.objects.bulk_create([Pending(run_id=run_id, at=now) for run_id in had_files], ignore_conflicts=True)
    transaction.on_commit(partial(_drop_all_left, had_files))


def _drop_all_left(run_ids: Collection[UUID]) -> None:
    for run_id in run_ids:
        try:
            _drop_left(run_id)
        except DurableAgentsError as error:
            log.error("erased run %s: %s It is tried again by each round.", run_id, error)


def _drop_left(run_id: UUID) -> None:
    """Delete the old archive files of a run that is in the database again. Raises StorageUnavailable."""
    for place in _runs_left(run_id):
        places.remove(place)
    Pending.objects.filter(run_id=run_id).delete()


def _rows(statement: str, values: Sequence[Any] = ()) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()


def _execute(statement: str, values: Sequence[Any] | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
