"""Keeps the head file up to date while this worker commits.

A thread sets a mark in the database, then writes it to the file. Every commit that had returned when the mark was begun
comes before the committed mark in the write-ahead log."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import Error, OperationalError, connection

from durableagents.contrib.restore_hold import database as db
from durableagents.contrib.restore_hold import heads, holding
from durableagents.contrib.restore_hold.comparing import Found, Hold, compare
from durableagents.contrib.restore_hold.heads import Head, HeadDamaged
from ledger.errors import DurableAgentsError, first_line
from runs.connections import dsn
from runs.fleet.procfs import host as this_host
from runs.fleet.procfs import identify, incarnation_id
from runs.journal.libpq import Connection

PAUSE_SECONDS = 0.1
# How often an idle worker reads the marks of other hosts, and how often a held worker checks whether it may follow.
REFRESH_SECONDS, SETTLE_SECONDS = 2.0, 1.0
# A worker claims and sends nothing once its commits have not reached the file for this long.
OVERDUE_SECONDS = 5.0

log = logging.getLogger("durableagents.restore_hold")


class Marker(threading.Thread):
    """Sets marks for one worker process. `count_commits` returns the number of its commits that have returned."""

    def __init__(self, count_commits: Callable[[], int]) -> None:
        super().__init__(name="restore hold", daemon=True)
        self._count = count_commits
        self._is_ending = threading.Event()
        self._link: psycopg.Connection | None = None
        self._seen = 0
        self._next_refresh = self._next_settling = 0.0
        self._unwritten_since: float | None = None
        self._trouble = ""
        self.is_held = False

    @property
    def is_overdue(self) -> bool:
        """Return whether the file has lacked commits of this worker for too long."""
        since = self._unwritten_since
        return since is not None and time.monotonic() - since > OVERDUE_SECONDS

    def run(self) -> None:
        """Set marks until `end` is called, then set a last one."""
        while not self._is_ending.wait(PAUSE_SECONDS if not self._trouble else SETTLE_SECONDS):
            self._attempt()
        self._attempt()
        self._hang_up()

    def end(self) -> None:
        """Set a final mark and stop, within a few seconds."""
        self._is_ending.set()
        self.join(OVERDUE_SECONDS)

    def _attempt(self) -> None:
        try:
            self._beat()
        except (psycopg.Error, Error, OSError, HeadDamaged, DurableAgentsError) as error:
            self._hang_up()
            self._say(f"{heads.path()}: {error.strerror}" if isinstance(error, OSError) else first_line(error))
        except Exception:
            self._hang_up()
            log.exception("the head file could not be renewed; trying again")
        else:
            self._say("")

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.error("the head file can't be renewed, and this worker sends nothing while it can't: %s", trouble)
        elif self._trouble and not trouble:
            log.warning("the head file is renewed again")
        self._trouble = trouble

    def _beat(self) -> None:
        now = time.monotonic()
        if self.is_held:
            self._unwritten_since = None
            if now >= self._next_settling:
                self._next_settling = now + SETTLE_SECONDS
                self._settle()
            return
        commits = self._count()
        if commits != self._seen:
            self._unwritten_since = self._unwritten_since or now
        if self._unwritten_since is not None:
            if self._follow(db.SET_MARK):
                self._seen, self._unwritten_since = commits, None
        elif now >= self._next_refresh:
            self._follow(db.READ_MARK)
        else:
            return
        self._next_refresh = now + REFRESH_SECONDS

    def _follow(self, statement: str) -> bool:
        """Set or read the mark, and write it to the file if it is newer. Return whether both were done.

        If the mark or the file is missing, or the mark went backwards, the database was restored in place, so compare
        it again."""
        head = holding.read_head()
        if not isinstance(head, Head) or head.line is None or head.waits_for is not None:
            return self._settle()
        if self._link is None or self._link.closed:
            self._link = psycopg.connect(dsn(name="durableagents head"), autocommit=True)
        parameters = [head.line] if statement == db.READ_MARK else [head.host, this_host(), head.line]
        row = self._link.execute(statement, parameters).fetchone()
        if row is None or row[0] < head.number + (statement == db.SET_MARK):
            return self._settle()
        if row[0] > head.number:
            _advance(replace(head, number=row[0], timeline=row[1], lsn=row[2]))
        return True

    def _settle(self) -> bool:
        """Compare again. Returns False, since no mark was set."""
        try:
            self.is_held = isinstance(holding.settle(), Hold)
            if not self.is_held:
                holding.vouch(own_incarnation())
        finally:
            connection.close()
        return False

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with suppress(psycopg.Error):
                link.close()


def _advance(head: Head) -> None:
    """Write the head, unless another process of this host wrote a newer one or placed a hold."""
    with heads.locked():
        known = heads.read()
        if known is None or known.waits_for is not None:
            return
        if known.line == head.line and known.number < head.number:
            heads.write(head)


# --- hooks of the feature ---------------------------------------------------------------------------------------------

_marker: Marker | None = None


def own_incarnation() -> UUID:
    """Return the id under which this worker process is registered."""
    identity = identify(os.getpid())
    assert identity is not None
    return incarnation_id(identity)


def is_on() -> bool:
    """Return whether holds are enabled in the settings."""
    return bool(settings.DURABLEAGENTS.restore_hold)


@contextmanager
def marking(count_commits: Callable[[], int]) -> Iterator[None]:
    """Keep the head file up to date while a worker drives runs."""
    global _marker
    if not is_on():
        yield
        return
    marker = _marker = Marker(count_commits)
    marker.start()
    try:
        yield
    finally:
        marker.end()


def is_overdue() -> bool:
    """Return whether this worker must not send anything because its head file can't be kept up to date."""
    return _marker is not None and _marker.is_overdue


async def check_connection(link: Connection) -> None:
    """Compare the head with the database of a worker's new connection, and hold if the database lacks the head.

    Raises psycopg.OperationalError if the two can't be compared, so that the connection isn't used."""
    if not is_on():
        return
    head = holding.read_head()
    row = await (await link.execute(db.STATE, db.parameters_for(head))).fetchone()
    assert row is not None
    is_waiting = isinstance(head, Head) and head.waits_for is not None
    if is_waiting or not isinstance(compare(head, db.database_of(row)), Found):
        await asyncio.to_thread(_settle_for_connection)
    else:
        await link.execute(db.VOUCH, [own_incarnation()])


def _settle_for_connection() -> None:
    try:
        if not isinstance(holding.settle(), Hold):
            holding.vouch(own_incarnation())
        elif _marker is not None:
            _marker.is_held = True
    except (Error, OSError, HeadDamaged, DurableAgentsError) as error:
        raise psycopg.OperationalError(f"whether the database was restored is unknown: {error}") from error
    finally:
        connection.close()


def check_process(kind: str) -> str | None:
    """Compare before a process begins to serve; return why it must not serve, or None. Raises OperationalError."""
    if not is_on():
        return None
    try:
        verdict = holding.settle(sends=kind == "worker")
        if kind == "worker" and not isinstance(verdict, Hold):
            holding.vouch(own_incarnation())
    except OSError as error:
        if kind != "worker":
            log.warning("whether the database was restored can't be checked: %s: %s", heads.path(), error.strerror)
            return None
        return (
            f"cannot write the head file {heads.path()} ({error.strerror}), needed to detect a restored database:"
            " make room or name another file in DURABLEAGENTS_RESTORE_HEAD"
        )
    except DurableAgentsError as error:
        raise OperationalError(error.detail) from error  # the caller tries again
    except Error as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            return (
                f"the database role can't tell if the database was restored ({first_line(error)}): as a superuser,"
                f" {db.GRANT.format(role=settings.DATABASES['default']['USER'])}; or set DURABLEAGENTS_RESTORE_HOLD=0"
            )
        raise
    finally:
        connection.close()
    return None
