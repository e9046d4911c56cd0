"""django-q2's broker over its own table, without its traps: SKIP LOCKED, oldest first, the database's clock, many at a
time.

A row holds a bare run id, or a schedule's id behind a word. The signed pickle that django-q2's processes pass among
themselves is built here in memory, after the row was read, so nothing pickled is ever loaded from the database. A
message is deleted as it is taken: losing a doorbell costs at most the seconds after which every host looks by itself
anyway, and no message can come back and run twice.

The ring itself goes from whoever made the run ready to one host (runs/services/wakeups.py). A pusher doesn't listen for
it: what it would bring is there before it, and each would pay a DELETE for every message of all. It takes what has
gathered, at its own pace.
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
from runs.services.wakeups import DRIVE, ENQUEUE_SQL, FIRE, is_run_id, ring

# Hosts look at the run table each second without any message.
PACE_SECONDS = 5.0
# One ring answers for all messages of a batch: a host that is rung claims until its slots are full.
BATCH = 500
_OF_SCHEDULE = "fire:"  # what a schedule's id stands behind

_TAKE = """
    DELETE FROM django_q_ormq WHERE id IN (
        SELECT id FROM django_q_ormq WHERE key = %s AND lock <= clock_timestamp()
        ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
    RETURNING id, payload"""

log = logging.getLogger("runs.services.wakeups")


class DoorbellBroker(Broker):
    """Used by whoever enqueues (on Django's connection) and by a cluster's pusher (on one of its own)."""

    # Class attributes, because the base class restores instances without __init__.
    _link: psycopg.Connection | None = None
    _parent: int | None = None
    _outage = log_messages.Outage(log, "pusher")
    _patience = Patience(last_seconds=1.0)
    _has_looked = False

    def enqueue(self, task: str) -> None:
        """Store the run id of a message that `wakeups.refuse` has let pass, in the caller's transaction; ring after its
        commit."""
        message = SignedPackage.loads(task)  # made by this process a moment ago
        named, is_schedule = message["args"][0], message["func"] == FIRE
        database = connections[Conf.ORM]
        with database.cursor() as cursor:
            cursor.execute(ENQUEUE_SQL, [f"{_OF_SCHEDULE}{named}" if is_schedule else named])
        if not is_schedule:
            ring(named)

    def dequeue(self) -> list[tuple[int, str]] | None:
        """The next message, or None after seconds without one. Never raises: django-q2's pusher would stop for ten
        seconds."""
        self._exit_if_orphaned()
        try:
            link = self._connected()
            rows = [] if self._has_looked else self._take(link)
            if not rows:
                for _ in link.notifies(timeout=PACE_SECONDS):  # nobody speaks on it but a server that hangs up
                    pass
                rows = self._take(link)
            self._has_looked = not rows
            return _packages(rows) or None
        except psycopg.Error as error:
            self._outage.began(error)
        except Exception:
            log.exception("the pusher could not take messages")
        self._disconnect()
        time.sleep(self._patience.seconds())
        return None

    def _connected(self) -> psycopg.Connection:
        if self._link is None:
            self._link = psycopg.connect(dsn(name="durableagents pusher"), autocommit=True)
            # A message whose deletion a crash undoes rings twice, which it may: nobody waits for the disk.
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
            if not is_run_id(payload.removeprefix(_OF_SCHEDULE)):
                log.warning(log_messages.FOREIGN_MESSAGE, number)
        return sorted((number, payload) for number, payload in rows if is_run_id(payload.removeprefix(_OF_SCHEDULE)))

    def _exit_if_orphaned(self) -> None:
        """A pusher whose sentinel died would go on taking messages and hand them to nobody."""
        parent = os.getppid()
        if self._parent is None:
            self._parent = parent
        elif self._parent != parent:
            os._exit(1)

    # What django-q2 asks of a broker besides. Messages are deleted as they are taken, so there is nothing to
    # acknowledge.

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

    # Its statistics are signed pickles in a cache; the fleet's table says more, and the sentinel needs no connection
    # for it.

    def set_stat(self, key: str, value: str, timeout: int) -> None: ...

    def get_stat(self, key: str) -> None: ...

    def get_stats(self, pattern: str) -> list[Any]:
        return []

    @staticmethod
    def get_connection(list_key: str | None = None) -> None:
        """None: the stock broker opens a connection here, and a sentinel started while the database is away would die
        of it."""


def _packages(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    of_schedules = [(number, text.removeprefix(_OF_SCHEDULE)) for number, text in rows if text.startswith(_OF_SCHEDULE)]
    of_runs = [(number, text) for number, text in rows if not text.startswith(_OF_SCHEDULE)]
    kinds = (("drive", DRIVE, of_runs), ("fire", FIRE, of_schedules))
    return [(some[0][0], _package(verb, func, [text for _, text in some])) for verb, func, some in kinds if some]


def _package(verb: str, func: str, ids: list[str]) -> str:
    task = {"id": ids[0], "name": f"{verb} {ids[0]}", "func": func, "args": tuple(ids), "kwargs": {}}
    return SignedPackage.dumps({**task, "started": timezone.now()})
