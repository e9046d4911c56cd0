"""Slows down guessing of passwords, without a cache or a table: the one web process remembers.

An attacker who gets the process restarted gets a fresh count; several web processes each count for themselves.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque

_MAX_KEYS = 10_000


class Limiter:
    """At most `limit` failures per key within `window_seconds`."""

    def __init__(self, limit: int, window_seconds: float) -> None:
        self._limit = limit
        self._window = window_seconds
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_seconds(self, key: str) -> float:
        """How long `key` must wait before the next try; 0 when it may try now."""
        with self._lock:
            # Asking must not enter a key: whoever asks for many names would fill the table.
            failures = self._recent(key) if key in self._failures else deque()
            if len(failures) < self._limit:
                return 0.0
            return max(0.0, failures[0] + self._window - time.monotonic())

    def failed(self, key: str) -> None:
        """Count a failure. The table is bounded: the key that failed longest ago is forgotten first."""
        with self._lock:
            self._recent(key).append(time.monotonic())
            self._failures.move_to_end(key)
            while len(self._failures) > _MAX_KEYS:
                self._failures.popitem(last=False)

    def forgive(self, key: str) -> None:
        """Forget the failures of a key that has proven itself."""
        with self._lock:
            self._failures.pop(key, None)

    def _recent(self, key: str) -> deque[float]:
        failures = self._failures.setdefault(key, deque(maxlen=self._limit))
        while failures and failures[0] <= time.monotonic() - self._window:
            failures.popleft()
        return failures


# The key of the first is name and address together, so that nobody can lock somebody else out from afar;
# the second bounds how many names one address may try.
login_by_name = Limiter(limit=10, window_seconds=300)
login_by_address = Limiter(limit=50, window_seconds=300)
