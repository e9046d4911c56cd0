"""Is it busy, or is the database away? Both come as an OperationalError, and want different acts of whoever reads
it."""

from __future__ import annotations

import logging
import threading
import time

from django.db import connection
from psycopg import errors
from psycopg_pool import PoolTimeout, TooManyRequests

log = logging.getLogger(__name__)
SAID_EVERY_SECONDS = 10.0
# So long after a connection could not be had anew, one that isn't to be had says that the database is away.
_OUTAGE_SECONDS = 5.0


def is_busy(error: BaseException) -> bool:
    """Whether the server is there and everything is only taken: every pooled connection, or a lock for longer than one
    waits."""
    reason = error.__cause__ if error.__cause__ is not None else error
    if isinstance(reason, (errors.LockNotAvailable, errors.QueryCanceled, TooManyRequests)):
        return True
    return isinstance(reason, PoolTimeout) and _failures.is_pool_taken()


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
    """One line for a burst of refusals: a line each would be one more thing to be busy with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._logged_at: float | None = None

    def note(self) -> None:
        with self._lock:
            self._count += 1
            now = time.monotonic()
            if self._logged_at is not None and now - self._logged_at < SAID_EVERY_SECONDS:
                return
            count, self._count, self._logged_at = self._count, 0, now
        log.warning("busy: %d requests were told to come back since this was last said", count)


_failures = _Failures()
busy_notice = Notice()
