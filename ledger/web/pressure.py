"""Distinguish a busy, an unavailable and a read-only database, which need different responses."""

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
# For this long after a failed reconnect, a missing connection means that the database is unavailable.
_OUTAGE_SECONDS = 5.0
_AWAY = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
_NO_WRITES = (errors.ReadOnlySqlTransaction, errors.DiskFull)
# psycopg counts these as internal errors, but they are transient: a standby, and a session closed by the server.
_PASSING = (errors.ReadOnlySqlTransaction, errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout)


def _reason(error: BaseException) -> BaseException:
    """Return the driver's error behind one of Django's."""
    return error.__cause__ if error.__cause__ is not None else error


def is_outage(error: BaseException | None) -> bool:
    """Return whether the database did not answer, or refused a statement for a transient reason."""
    return error is not None and (isinstance(error, _AWAY) or isinstance(_reason(error), _PASSING))


def takes_no_writes(error: BaseException) -> bool:
    """Return whether the database answers but refuses writes: a standby, or a full disk."""
    return isinstance(_reason(error), _NO_WRITES)


def is_busy(error: BaseException) -> bool:
    """Return whether the database is up but at capacity: all pooled connections in use, or a lock held too long."""
    reason = _reason(error)
    if isinstance(reason, (errors.LockNotAvailable, errors.QueryCanceled, TooManyRequests)):
        return True
    return isinstance(reason, PoolTimeout) and _failures.is_pool_taken()


def optionally(write: Callable[[], T]) -> T | None:
    """Do an optional write that accompanies a read, such as a key's last use.

    Return None if the database is read-only.
    """
    try:
        return write()
    except DatabaseError as error:
        if connection.in_atomic_block or not takes_no_writes(error):
            raise
        return None


def renew_connections() -> None:
    """Close this thread's connection and the pool's idle ones.

    After a failover, an open connection may still lead to the old server, now read-only; a new one leads to the
    primary.
    """
    if connection.in_atomic_block:
        return
    if connection.connection is not None:
        connection.connection.close()  # the pool discards a closed connection
    connection.close()
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.drain()


class _Failures:
    """The time of the pool's last connection failure.

    The pool only counts failures, so the last known count is stored here.
    """

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
    """Logs one line per burst of refusals, because a line for each refusal would add to the load."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._count = 0
        self._logged_at: float | None = None

    def note(self, reason: str = "") -> None:
        """Count a refusal, and log the count at most every few seconds."""
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
content_notice = Notice("content not available")
no_writes_notice = Notice("database takes no writes")
