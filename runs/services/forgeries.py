"""Callbacks with tokens that nobody gave out: counted, and said in the log at most once a minute."""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger(__name__)
LOG_EVERY_SECONDS = 60.0


class Forgeries:
    """Whoever tries tokens must leave a trace, and must not be able to fill the disk with it."""

    def __init__(self) -> None:
        self.count = 0
        self._unlogged = 0
        self._logged_at: float | None = None
        self._lock = threading.Lock()

    def note(self, address: str) -> None:
        """Count one. The token itself is not said: it may be a true one with a slip in it."""
        with self._lock:
            self.count += 1
            self._unlogged += 1
            now = time.monotonic()
            if self._logged_at is not None and now - self._logged_at < LOG_EVERY_SECONDS:
                return
            unlogged, self._unlogged, self._logged_at = self._unlogged, 0, now
        log.warning(
            "callbacks with unknown tokens were refused: %d since this was last said, the latest from %s",
            unlogged,
            address or "?",
        )


forgeries = Forgeries()
