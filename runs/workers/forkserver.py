"""The nursery: a preloaded process that forks clusters, which share its memory.
The nursery has no threads or connections. The kernel makes the clusters children of the supervisor. Where it can't,
clusters are started with exec (runs/workers/process_group.py)."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import NoReturn

from runs.fleet import procfs
from runs.fleet.procfs import tie_to_parent

CAN_BEAR = procfs.IS_LINUX
WARM = b"warm"
# Time for all imports, on a machine that starts everything at once.
WARM_SECONDS = 60.0
# The supervisor waits this long for the answer. A fork takes milliseconds.
BIRTH_SECONDS = 2.0
log = logging.getLogger("runs.workers.forkserver")


class Nursery:
    """The supervisor's handle on the nursery."""

    def __init__(self, start: Callable[[socket.socket, socket.socket], int]) -> None:
        """Start the nursery with `start`, which comes from `by_exec` or `by_fork` and receives both ends of the link.
        Call this in the main thread. Raises OSError."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.pid = start(self._control, theirs)
        except OSError:
            self._control.close()
            raise
        finally:
            theirs.close()
        self._control.settimeout(BIRTH_SECONDS)
        self._is_reaped = False
        self.is_warm = False
        self._started_at = monotonic()

    def fileno(self) -> int:
        """Return the link's descriptor, which is readable when the nursery is warm or has died."""
        return self._control.fileno()

    def listen(self) -> None:
        if not self.is_warm and select.select([self._control], [], [], 0)[0]:
            with suppress(OSError):
                self.is_warm = self._control.recv(64) == WARM

    def trouble(self) -> str | None:
        """Return why the nursery must be replaced, or None."""
        self._is_reaped = self._is_reaped or os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        if self._is_reaped:
            return "died"
        if not self.is_warm and monotonic() - self._started_at > WARM_SECONDS:
            return f"did not start within {WARM_SECONDS:g} s"
        return None

    def bear(self, number: int, report: int) -> int:
        """Fork cluster `number`, which reports through the pipe `report`.
        Returns its sentinel's pid. Raises OSError. After an error the nursery is unusable. If a cluster was forked all
        the same, it ends when its pipe is closed."""
        socket.send_fds(self._control, [b"%d" % number], [report])
        pid = int(self._control.recv(64) or 0)
        if not pid:
            raise ChildProcessError("the fork server could not fork")
        return pid

    def end(self) -> None:
        """SIGKILL the nursery; nothing is lost by that. The caller reaps it later as an orphan."""
        if not self._is_reaped:
            os.kill(self.pid, signal.SIGKILL)
        self._control.close()
        for process in procfs.of_session(self.pid):  # a process that was just being forked
            procfs.send(process.pid, process.born_ticks, signal.SIGKILL)


def by_exec(command: list[str]) -> Callable[[socket.socket, socket.socket], int]:
    """Return a starter that uses the code that is on disk now. `command` is complete except for the descriptor."""

    def start(ours: socket.socket, theirs: socket.socket) -> int:
        number = theirs.fileno()
        process = subprocess.Popen(
            [*command, str(number)], stdin=subprocess.DEVNULL, pass_fds=(number,), start_new_session=True
        )
        process.returncode = 0  # reaped by pid, like a forked one
        return process.pid

    return start


def by_fork(
    warm_up: Callable[[], None], become: Callable[[int, int], NoReturn], forget: Callable[[], object]
) -> Callable[[socket.socket, socket.socket], int]:
    """Return a starter that forks the supervisor, so that memory is shared.
    The supervisor must not have any threads or connections yet. `forget` closes what belongs to the supervisor."""

    def start(ours: socket.socket, theirs: socket.socket) -> int:
        supervisor = os.getpid()
        if pid := os.fork():
            return pid
        try:
            os.setsid()
            tie_to_parent(supervisor)
            ours.close()
            forget()
            empty = os.open(os.devnull, os.O_RDONLY)
            os.dup2(empty, 0)
            os.close(empty)
            nurse(theirs.detach(), warm_up, become)
        except BaseException:
            log.exception("the fork server could not be started")
            logging.shutdown()
            os._exit(1)

    return start


def nurse(control: int, warm_up: Callable[[], None], become: Callable[[int, int], NoReturn]) -> NoReturn:
    """Run the nursery until the link is closed.
    Calls `warm_up()`, then `become(number, report)` in a new process for each request."""
    supervisor = os.getppid()
    link = socket.socket(fileno=control)
    warm_up()
    gc.collect()
    gc.freeze()
    link.send(WARM)
    while True:
        request, handed, *_ = socket.recv_fds(link, 64, 1)
        if not request:
            os._exit(0)
        (report,) = handed
        try:
            between = os.fork()
        except OSError:
            log.exception("no process could be forked")
            link.send(b"0")
        else:
            if not between:
                _hand_over(link, supervisor, partial(become, int(request), report))
            os.waitpid(between, 0)
        os.close(report)


def _hand_over(link: socket.socket, supervisor: int, become: Callable[[], NoReturn]) -> NoReturn:
    """Fork again and end. The kernel makes the orphan a child of the supervisor, the nearest subreaper."""
    between = os.getpid()
    try:
        if pid := os.fork():
            link.send(b"%d" % pid)
            os._exit(0)
        os.setsid()
        link.close()
        while os.getppid() == between:
            time.sleep(0.0005)
        tie_to_parent(supervisor)
        become()
    except BaseException:
        log.exception("a cluster could not be started")
        if os.getpid() == between:
            link.send(b"0")
        logging.shutdown()
        os._exit(1)


def command(boot: str, checkout: str) -> list[str]:
    return [sys.executable, "-c", boot, checkout, str(os.getpid()), "cluster", "--nursery"]
