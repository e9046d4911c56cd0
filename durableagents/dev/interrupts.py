"""INT, TERM and HUP as exceptions at the places that wait, never in the middle of a step; USR1 as a question to ask
there."""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType

# A double delivery of one Ctrl-C (terminal and a forwarding parent) is not a second one.
SECOND_CTRL_C_AFTER_SECONDS = 0.3


class Stopped(Exception):
    """A signal asked us to end: drain."""


class StoppedAtOnce(Exception):
    """A second Ctrl-C: no more draining."""


class Signals:
    """INT, TERM and HUP as exceptions at the places that wait, never in the middle of a step."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._hurry = False
        self._draining = False
        self._is_restart_requested = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def install(self) -> None:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._note)
        # Under nohup the terminal's hang-up is meant to be survived.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._note)
        signal.signal(signal.SIGUSR1, self._note_restart)
        # Its handler does nothing; its wake-up makes a child's death noticed at once.
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
        elif signum == signal.SIGINT and now - self._first > SECOND_CTRL_C_AFTER_SECONDS:
            self._hurry = True

    def _note_restart(self, *_: object) -> None:
        self._is_restart_requested = True

    def take_restart(self) -> bool:
        """Whether a restart was asked for since the last look."""
        requested, self._is_restart_requested = self._is_restart_requested, False
        return requested

    def start_draining(self) -> None:
        self._draining = True

    def idle(self, seconds: float) -> None:
        """Sleep until the time is over, a child died or a signal came. Raises Stopped (until
        draining has begun), then StoppedAtOnce."""
        self._raise_if_requested()
        select.select([self._read], [], [], seconds)
        try:
            while os.read(self._read, 512):
                pass
        except BlockingIOError:
            pass
        self._raise_if_requested()

    def _raise_if_requested(self) -> None:
        if self._hurry:
            raise StoppedAtOnce
        if self._first is not None and not self._draining:
            raise Stopped
