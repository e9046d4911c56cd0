"""Which master keys the keys of runs are encrypted under, and encrypting them under the current one."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Count

from durableagents.contrib.encryption import master_keys
from durableagents.contrib.encryption.models import RunKey
from durableagents.contrib.encryption.run_keys import unwrap, wrap
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
    """Return the ids of the master keys that runs need, by index, however many runs there are."""
    with connection.cursor() as cursor:
        cursor.execute(_IS_MIGRATED)
        if not cursor.fetchone()[0]:
            return []  # before `migrate`
        cursor.execute(_IN_USE)
        return [master for (master,) in cursor.fetchall()]


def counts() -> dict[str, int]:
    """Return the number of runs by id of the master key."""
    rows = RunKey.objects.values_list("master").annotate(Count("run_id")).order_by("master")
    return dict(rows)


def refusal() -> str | None:
    """Return why this process must not serve, or None: a key that it needs is missing, or unreadable."""
    needed = in_use()
    try:
        master_keys.current()
        for key_id in needed:
            master_keys.find(key_id)
    except master_keys.KeyUnavailable as error:
        return str(error)
    return None


def rotate() -> Iterator[int]:
    """Encrypt the keys of all runs under the current master key, in batches, each its own transaction; yield the number
    of each. Runs go on meanwhile, and an interrupted rotation is continued by the next. Raises KeyUnavailable,
    KeyDamaged, and Forbidden for a database role that may not change keys."""
    master = master_keys.current()
    if master is None:
        raise master_keys.KeyUnavailable("DURABLEAGENTS_ENCRYPTION_KEYS is empty: name the new master key first")
    with connection.cursor() as cursor:
        cursor.execute(_MAY_CHANGE)
        if not cursor.fetchone()[0]:
            raise Forbidden(
                "The runtime role may not change keys: run it as the owner, with DURABLEAGENTS_DB_ROLE=owner."
            )
    after: UUID | None = None
    while True:
        with transaction.atomic():
            rows = RunKey.objects.select_for_update().exclude(master=master.id).order_by("run_id")
            batch = list((rows if after is None else rows.filter(run_id__gt=after))[:BATCH])
            for row in batch:
                secret = unwrap(master_keys.find(row.master), row.run_id, bytes(row.wrapped))
                row.master, row.wrapped = master.id, wrap(master, row.run_id, secret)
            RunKey.objects.bulk_update(batch, ["master", "wrapped"])
        if not batch:
            return
        after = batch[-1].run_id
        yield len(batch)
