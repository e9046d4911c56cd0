"""Additional processes of apps (`Feature.helpers`), which the supervisor keeps running next to its workers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from time import monotonic

from runs import features, log_messages
from runs.backoff import Patience
from runs.workers.process_group import BOOT, CHECKOUT

log = logging.getLogger("runs.workers.helpers")
# If a process lived this long, it is restarted without a growing delay.
YOUNG_SECONDS = 60.0


class Helper:
    """An additional process of an app.
    It dies with the supervisor, and belongs to its session, so that `reap_orphans` ignores it."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._patience = Patience(first_seconds=0.5, last_seconds=30.0)
        self._start_at = self._started_at = 0.0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def keep(self) -> None:
        """Start the process if it isn't running.
        Call this in the main thread, because children die with the thread that started them."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            if monotonic() - self._started_at > YOUNG_SECONDS:
                self._patience.reset()
            seconds = self._patience.seconds()
            self._start_at = monotonic() + seconds
            log.warning(log_messages.HELPER_DIED, self._command, code, seconds)
        if self._process is None and monotonic() >= self._start_at:
            self._started_at = monotonic()
            argv = [sys.executable, "-c", BOOT, str(CHECKOUT), str(os.getpid()), self._command]
            try:
                self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
            except OSError as error:
                self._start_at = monotonic() + (seconds := self._patience.seconds())
                log.error(log_messages.HELPER_NOT_STARTED, self._command, error, seconds)

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def end(self, seconds: float) -> None:
        """Wait up to `seconds` for the process to end after `terminate`; kill it if it doesn't."""
        if self._process is None:
            return
        try:
            self._process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def helpers() -> list[Helper]:
    """Return the processes that apps request, without starting them."""
    return [Helper(command) for command in features.parts_of_all(lambda each: each.helpers)]
