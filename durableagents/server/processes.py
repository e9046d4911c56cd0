"""Several web processes on one socket: each is a `manage.py web` of its own, started, watched, replaced and ended from
here.

The kernel gives each connection to one of them. They share nothing but the socket and the database: failed sign-ins are
counted there, and each listens for itself to what its pages want to hear.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from types import FrameType

from durableagents.env import CHECKOUT
from durableagents.server import child_processes

# A process that can't start must not be tried faster than this.
_PAUSE_SECONDS = 1.0
_TICK_SECONDS = 0.1


class Webs:
    """`count` web processes on `listener`, until a signal comes."""

    def __init__(self, listener: socket.socket, count: int, *, patience_seconds: float, ready_fd: int | None) -> None:
        self._listener, self._count = listener, count
        self._patience_seconds, self._ready_fd = patience_seconds, ready_fd
        self._stop_signal: int | None = None
        self._is_second = False
        # Each with the end of a pipe on which it says that it serves; None once it has.
        self._webs: dict[subprocess.Popen[bytes], int | None] = {}
        self._not_before = 0.0

    def run(self) -> int:
        """Returns the exit code."""
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._stop)
        while self._stop_signal is None:
            self._bury()
            while len(self._webs) < self._count and time.monotonic() >= self._not_before:
                self._start()
            self._hear()
        return self._end(self._stop_signal)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self._is_second = self._stop_signal is not None
        self._stop_signal = signum

    def _start(self) -> None:
        ours, theirs = os.pipe()
        try:
            listener = self._listener.fileno()
            process = subprocess.Popen(
                [sys.executable, "manage.py", "web", f"--fd={listener}", f"--ready-fd={theirs}"],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                pass_fds=[listener, theirs],
                start_new_session=True,
                preexec_fn=child_processes.die_with_parent(signal.SIGTERM),
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._webs[process] = ours

    def _bury(self) -> None:
        for process in [each for each in self._webs if each.poll() is not None]:
            if (pipe := self._webs.pop(process)) is not None:
                os.close(pipe)
            if self._stop_signal is None:
                _say(
                    f"pid {process.pid} ended with {child_processes.how_it_ended(process.returncode)}; starting another"
                )
                self._not_before = time.monotonic() + _PAUSE_SECONDS

    def _hear(self) -> None:
        """Wait a tick, or until one of them says that it serves. When all do, we say so."""
        silent = {pipe: process for process, pipe in self._webs.items() if pipe is not None}
        for pipe in select.select(list(silent), [], [], _TICK_SECONDS)[0]:
            if os.read(pipe, 64):
                os.close(pipe)
                self._webs[silent[pipe]] = None
            else:  # closed without a word: it is about to end
                time.sleep(_TICK_SECONDS)
        if self._ready_fd is not None and len(self._webs) == self._count and not any(self._webs.values()):
            os.write(self._ready_fd, b"ready\n")
            os.close(self._ready_fd)
            self._ready_fd = None

    def _end(self, signum: int) -> int:
        """Hand the signal on; they end in their own time, and at the latest after their patience."""
        self._listener.close()
        for process in self._webs:
            process.send_signal(signum)
        deadline = time.monotonic() + self._patience_seconds + 5.0
        is_signalled_again = False
        while self._webs:
            self._bury()
            if self._is_second and not is_signalled_again:
                is_signalled_again = True
                for process in self._webs:
                    process.send_signal(signum)
            if time.monotonic() > deadline:
                for process in self._webs:
                    process.send_signal(signal.SIGKILL)
                deadline += 5.0
            time.sleep(_TICK_SECONDS / 2)
        return 0


def serve_all(listener: socket.socket, count: int, *, patience_seconds: float, ready_fd: int | None = None) -> int:
    """Serve with `count` processes until told to stop. The exit code."""
    return Webs(listener, count, patience_seconds=patience_seconds, ready_fd=ready_fd).run()


def _say(text: str) -> None:
    sys.stderr.write(f"web: {text}\n")
