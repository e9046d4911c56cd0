"""django-q2's broker on its own table.
It takes batches of messages with SKIP LOCKED, in the order of their ids. A row holds only an id, so no pickle is ever
loaded from the database. A message is deleted as it is taken; if it is lost, its run starts at most a few seconds
later, when a host checks the run table by itself. Hosts are notified directly (runs/services/wakeups.py), so pushers
need not hurry.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import psycopg
from django.db import connections
from django.utils import timezone
from django_q.brokers import Broker
from django_q.conf import Conf
from django_q.signing import SignedPackage

from runs import log_messages
from runs.backoff import Patience
from runs.connections import dsn
from runs.services.wakeups import DRIVE, ENQUEUE_SQL, is_run_id, ring

# Hosts check the run table every second even without a message.
PACE_SECONDS = 5.0
# One wake-up is enough for the whole batch, because a host claims runs until its slots are full.
BATCH = 500

_TAKE = """
    DELETE FROM django_q_ormq WHERE id IN (
        SELECT id FROM django_q_ormq WHERE key = %s AND lock <= clock_timestamp()
        ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
    RETURNING id, payload"""

log = logging.getLogger("runs.services.wakeups")


class DoorbellBroker(Broker):
    """The broker, used to enqueue (on Django's connection) and by a cluster's pusher (on a connection of its own)."""

    # These are class attributes, because the base class restores instances without calling __init__.
    _link: psycopg.Connection | None = None
    _parent: int | None = None
    _outage = log_messages.Outage(log, "pusher")
    _patience = Patience(last_seconds=1.0)
    _has_looked = False

    def enqueue(self, task: str) -> None:
        """Store the id of an allowed message in the caller's transaction, and notify after the commit."""
        run_id = SignedPackage.loads(task)["args"][0]  # this process has just created it
        database = connections[Conf.ORM]
        with database.cursor() as cursor:
            cursor.execute(ENQUEUE_SQL, [run_id])
        ring(run_id)

    def dequeue(self) -> list[tuple[int, str]] | None:
        """Return the next messages, or None.
        Never raises, because an error would stop the pusher for ten seconds."""
        self._exit_if_orphaned()
        try:
            link = self._connected()
            rows = [] if self._has_looked else self._take(link)
            if not rows:
                # only a server that closes the connection sends anything on it
                for _ in link.notifies(timeout=PACE_SECONDS):
                    pass
                rows = self._take(link)
            self._has_looked = not rows
            return _package(rows) if rows else None
        except psycopg.Error as error:
            self._outage.began(error)
        except Exception:
            log.exception("the pusher could not read messages")
        self._disconnect()
        time.sleep(self._patience.seconds())
        return None

    def _connected(self) -> psycopg.Connection:
        if self._link is None:
            self._link = psycopg.connect(dsn(name="durableagents pusher"), autocommit=True)
            # If a crash undoes the deletion, a message merely wakes a worker twice, so the commit need not wait for the
            # disk.
            self._link.execute("SET synchronous_commit = off")
            self._has_looked = False
            self._outage.over()
            self._patience.reset()
        return self._link

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _take(self, link: psycopg.Connection) -> list[tuple[int, str]]:
        rows: list[tuple[int, str]] = link.execute(_TAKE, [self.list_key, BATCH]).fetchall()
        for number, payload in rows:
            if not is_run_id(payload):
                log.warning(log_messages.FOREIGN_MESSAGE, number)
        return sorted((number, payload) for number, payload in rows if is_run_id(payload))

    def _exit_if_orphaned(self) -> None:
        """Exit if the supervisor has died. Otherwise the pusher would take messages that nobody receives."""
        parent = os.getppid()
        if self._parent is None:
            self._parent = parent
        elif self._parent != parent:
            os._exit(1)

    # The rest is django-q2's interface. Messages are deleted as they are taken, so there is nothing to acknowledge.

    def acknowledge(self, task_id: int) -> None: ...

    def fail(self, task_id: int) -> None: ...

    def delete(self, task_id: int) -> None: ...

    def ping(self) -> bool:
        return True

    def info(self) -> str:
        return "durableagents doorbell"

    def queue_size(self) -> int:
        with connections[Conf.ORM].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM django_q_ormq WHERE key = %s", [self.list_key])
            return int(cursor.fetchone()[0])

    def lock_size(self) -> int:
        return 0

    def delete_queue(self) -> None:
        self.purge_queue()

    def purge_queue(self) -> None:
        with connections[Conf.ORM].cursor() as cursor:
            cursor.execute("DELETE FROM django_q_ormq WHERE key = %s", [self.list_key])

    # django-q2's statistics are signed pickles in a cache. The fleet table has more, and needs no connection here.

    def set_stat(self, key: str, value: str, timeout: int) -> None: ...

    def get_stat(self, key: str) -> None: ...

    def get_stats(self, pattern: str) -> list[Any]:
        return []

    @staticmethod
    def get_connection(list_key: str | None = None) -> None:
        """Return None. The stock broker would connect here, and a sentinel that starts during an outage would die."""


def _package(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    ids = [run_id for _, run_id in rows]
    task = {"id": ids[0], "name": f"drive {ids[0]}", "func": DRIVE, "args": tuple(ids), "kwargs": {}}
    return [(rows[0][0], SignedPackage.dumps({**task, "started": timezone.now()}))]
