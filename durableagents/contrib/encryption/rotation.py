"""Find the master keys that runs need, and rotate: encrypt the keys of all runs under the current master key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Count

from durableagents.contrib.encryption import master_keys
from durableagents.contrib.encryption.models import RunKey
from durableagents.contrib.encryption.run_keys import KeyDamaged, unwrap, wrap
from ledger.errors import Forbidden

BATCH = 500
_IS_MIGRATED = "SELECT to_regclass('encryption_runkey') IS NOT NULL"
_MAY_CHANGE = "SELECT has_table_privilege('encryption_runkey', 'UPDATE')"
_IN_USE = """
WITH RECURSIVE used(master) AS (
    SELECT min(master) FROM encryption_runkey
    UNION ALL SELECT (SELECT min(master) FROM encryption_runkey WHERE master > used.master) FROM used
    WHERE used.master IS NOT NULL)
SELECT master FROM used WHERE master IS NOT NULL"""


def in_use() -> list[str]:
    """Return the ids of the master keys that runs need. Uses an index, so the number of runs doesn't matter."""
    with connection.cursor() as cursor:
        cursor.execute(_IS_MIGRATED)
        if not cursor.fetchone()[0]:
            return []  # the table is missing before `migrate`
        cursor.execute(_IN_USE)
        return [master for (master,) in cursor.fetchall()]


def counts() -> dict[str, int]:
    """Return the number of runs by id of the master key."""
    rows = RunKey.objects.values_list("master").annotate(Count("run_id")).order_by("master")
    return dict(rows)


def refusal() -> str | None:
    """Return why this process must not serve (a key that it needs is missing or unreadable); None if it may."""
    needed = in_use()
    try:
        master_keys.check()
        for key_id in needed:
            master_keys.find(key_id)
    except master_keys.KeyUnavailable as error:
        return str(error)
    return None


@dataclass
class Progress:
    """The progress of a rotation, as numbers of runs. Runs with damaged keys are skipped and listed in `damaged`."""

    total: int
    done: int = 0
    damaged: list[UUID] = field(default_factory=list)


def begin(*, is_known: bool = False) -> Progress:
    """Return the progress of a rotation to the current master key before it starts.

    Raises KeyUnavailable, and Forbidden for a database role that may not change keys. Unless `is_known`, also raises
    Forbidden if no process has used the current key: processes without it couldn't read anything any more.
    """
    master = _target()
    with connection.cursor() as cursor:
        cursor.execute(_MAY_CHANGE)
        if not cursor.fetchone()[0]:
            raise Forbidden("This database role may not change keys: run it with DURABLEAGENTS_DB_ROLE=owner.")
    before = counts()
    if not is_known and master.id not in before:
        raise Forbidden(
            f"No run was started under master key {master.id} yet. Restart web and workers with it first: a process "
            "without it could no longer read anything. If all of them have it, confirm it with --known."
        )
    return Progress(sum(before.values()) - before.get(master.id, 0))


def go_on(progress: Progress) -> Iterator[None]:
    """Encrypt the keys of all runs under the current master key, in batches of one transaction each; yield after each.

    Runs continue meanwhile, and the next rotation continues one that was interrupted. Raises KeyUnavailable.
    """
    master, after = _target(), UUID(int=0)
    while True:
        with transaction.atomic():
            rows = RunKey.objects.select_for_update().exclude(master=master.id).filter(run_id__gt=after)
            batch = list(rows.order_by("run_id")[:BATCH])
            changed = []
            for row in batch:
                try:
                    secret = unwrap(master_keys.find(row.master), row.run_id, bytes(row.wrapped))
                except KeyDamaged:
                    progress.damaged.append(row.run_id)
                    continue
                row.master, row.wrapped = master.id, wrap(master, row.run_id, secret)
                changed.append(row)
            RunKey.objects.bulk_update(changed, ["master", "wrapped"])
        if not batch:
            return
        after = batch[-1].run_id
        progress.done += len(changed)
        yield


def _target() -> master_keys.MasterKey:
    master = master_keys.current()
    if master is None:
        raise master_keys.KeyUnavailable("DURABLEAGENTS_ENCRYPTION_KEYS names no key: name the new master key first")
    return master
