"""Tell a busy database, one that is away, and one that takes no writes apart: each asks for something else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from psycopg import errors
from psycopg_pool import PoolTimeout, TooManyRequests

T = TypeVar("T")
log = logging.getLogger(__name__)
SAID_EVERY_SECONDS = 10.0
# So long after a connection could not be had anew, one that isn't to be had says that the database is away.
_OUTAGE_SECONDS = 5.0
_AWAY = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
_NO_WRITES = (errors.ReadOnlySqlTransaction, errors.DiskFull)
# psycopg counts these among the internal errors, but they pass: a standby, and a session that the server has closed.
_PASSING = (errors.ReadOnlySqlTransaction, errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout)


def _reason(error: BaseException) -> BaseException:
    """Return the driver's error behind one of Django's."""
    return error.__cause__ if error.__cause__ is not None else error


def is_outage(error: BaseException | None) -> bool:
    """Return whether the database got no answer to a statement, or refused it for a reason that passes by itself."""
    return error is not None and (isinstance(error, _AWAY) or isinstance(_reason(error), _PASSING))


def takes_no_writes(error: BaseException) -> bool:
    """Return whether the database answers and only refuses to write: a standby, or a full disk."""
    return isinstance(_reason(error), _NO_WRITES)


def is_busy(error: BaseException) -> bool:
    """Return whether the server is there and everything is taken: all pooled connections, or a lock for too long."""
    reason = _reason(error)
    if isinstance(reason, (errors.LockNotAvailable, errors.QueryCanceled, TooManyRequests)):
        return True
    return isinstance(reason, PoolTimeout) and _failures.is_pool_taken()


def optionally(write: Callable[[], T]) -> T | None:
    """Do a write that accompanies a read, such as noting when a key was used. None where the database takes no writes:
    the read goes on without it."""
    try:
        return write()
    except DatabaseError as error:
        if connection.in_atomic_block or not takes_no_writes(error):
            raise
        return None


def renew_connections() -> None:
    """Close this thread's connection and those that are idle in the pool. After a failover, a connection that was kept
    may lead to the server that became read-only; a new one leads to the server that takes writes."""
    if connection.in_atomic_block:
        return
    if connection.connection is not None:
        connection.connection.close()  # the pool doesn't keep one that is closed
    connection.close()
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.drain()


class _Failures:
    """When the pool last failed to connect. Its own figures only count, so what was counted last is kept here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted = 0
        self._at = 0.0

    def is_pool_taken(self) -> bool:
        pool = getattr(connection, "pool", None)
        if pool is None:
            return False
        figures = pool.get_stats()
        with self._lock:
            if (counted := figures.get("connections_errors", 0)) != self._counted:
                self._counted, self._at = counted, time.monotonic()
            if self._at and time.monotonic() - self._at < _OUTAGE_SECONDS:
                return False
        return int(figures["pool_size"]) >= int(figures["pool_max"])


class Notice:
    """One log line for a burst of refusals. A line for each would add to the load."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._count = 0
        self._logged_at: float | None = None

    def note(self, reason: str = "") -> None:
        """Count a refusal, and log the count unless that was done in the last seconds."""
        with self._lock:
            self._count += 1
            now = time.monotonic()
            if self._logged_at is not None and now - self._logged_at < SAID_EVERY_SECONDS:
                return
            count, self._count, self._logged_at = self._count, 0, now
        log.warning(
            "%s: %d requests refused since the last line%s", self._what, count, f" ({reason})" if reason else ""
        )


_failures = _Failures()
busy_notice = Notice("busy")
outage_notice = Notice("database not available")
no_writes_notice = Notice("database takes no writes")
