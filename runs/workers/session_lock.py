"""A worker's membership: its row, and a session lock, which the database releases when the connection ends.
If either is missing, the worker fences itself: it claims and sends nothing new, but it commits results, because the
lease decides whether they are accepted."""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable

import psycopg

from runs import log_messages
from runs.connections import dsn, tag_of
from runs.fleet import members
from runs.fleet.members import Sign
from runs.fleet.procfs import incarnation_id

log = logging.getLogger("runs.workers.session_lock")

# A membership that isn't confirmed for this long is lost. Beats come every second.
HOLD_SECONDS = 3.0
# An old, half-open connection of this same process may still hold the lock: close it, and wait for its end (ms).
_EVICT = """
    SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = %s AND pid <> pg_backend_pid()"""
_LOCK = f"SELECT pg_try_advisory_lock({members.LOCK_KEY.format(id='%s::uuid')})"


class Presence:
    """A worker's membership, used by the heartbeat's thread. `is_held` is thread-safe."""

    def __init__(self, sign: Callable[[], Sign]) -> None:
        self._sign = sign
        self._id = incarnation_id(sign().identity)
        self._name = f"durableagents presence {tag_of(self._id)}"
        self._link: psycopg.Connection | None = None
        self._confirmed_at: float | None = None
        self._guard = threading.Lock()
        self._outage = log_messages.Outage(log, "presence")
        self.is_buried = self.is_drain_asked = False

    @property
    def is_held(self) -> bool:
        """Return whether this worker may claim and send.
        Lock and row must just have been confirmed, and the worker must not have been declared dead."""
        at = self._confirmed_at
        return at is not None and not self.is_buried and time.monotonic() - at < HOLD_SECONDS

    def announce(self) -> bool:
        """Take the lock if it isn't held, and send a heartbeat.
        Returns False if that isn't possible at the moment."""
        with self._guard:
            began = time.monotonic()
            try:
                is_held = self._hold() and self._beat()
            except (psycopg.Error, OSError) as error:
                self._lose()
                self._outage.began(error)
                return False
            self._outage.over()
            self._confirmed_at = began if is_held else None
            return is_held

    def rest(self, seconds: float) -> None:
        """Wait until the next heartbeat is due, or until the connection is readable.
        The latter means that the server is closing it."""
        link = self._link
        if link is None or link.closed:
            time.sleep(min(seconds, 0.2))
            return
        readable, _, _ = select.select([link.pgconn.socket], [], [], seconds)
        if readable:
            self._confirmed_at = None

    def leave(self) -> None:
        """End the membership."""
        with self._guard:
            self._lose()

    def _hold(self) -> bool:
        if self._link is not None and not self._link.closed:
            return True
        self._confirmed_at = None
        self._link = psycopg.connect(dsn(name="durableagents presence"), autocommit=True)
        if self._is_locked():
            return True
        self._link.execute(_EVICT, [self._name])
        if self._is_locked():
            return True
        self._lose()
        return False

    def _is_locked(self) -> bool:
        assert self._link is not None
        row = self._link.execute(_LOCK, [self._id]).fetchone()
        return row is not None and bool(row[0])

    def _beat(self) -> bool:
        assert self._link is not None
        heard = members.beat_anchored(self._link, self._sign())
        self.is_buried |= heard.is_buried
        self.is_drain_asked |= heard.is_drain_asked
        return not heard.is_buried

    def _lose(self) -> None:
        self._confirmed_at = None
        link, self._link = self._link, None
        if link is not None:
            link.close()
