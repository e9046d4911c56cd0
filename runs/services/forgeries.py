"""Callbacks with unknown tokens are counted, and logged at most once a minute."""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger(__name__)
LOG_EVERY_SECONDS = 60.0


class Forgeries:
    """A counter with a rate-limited log, so that guessing tokens leaves a trace but can't fill the disk."""

    def __init__(self) -> None:
        self.count = 0
        self._unlogged = 0
        self._logged_at: float | None = None
        self._lock = threading.Lock()

    def note(self, address: str) -> None:
        """Count a callback with an unknown token.
        The token isn't logged, because it may be a real one with a typo."""
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
