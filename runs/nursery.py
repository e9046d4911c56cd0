"""Where clusters are born: a process that has loaded all they need, with no thread and no connection, and forks one whenever it is asked.

What is forked shares its memory: a further cluster costs what it changes, not what it loads, and comes in milliseconds. A new cluster
is at once handed to the supervisor, as if that had forked it: its parent, which it is tied to and which reaps it. That takes a kernel that
hands orphans on, so elsewhere clusters are started by exec (runs/tree.py).
"""

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

from runs import processes
from runs.processes import tie_to_parent

CAN_BEAR = processes.IS_LINUX
WARM = b"warm"
# With all imports, on a machine that starts everything at once.
WARM_SECONDS = 60.0
# The supervisor waits for the answer; a fork takes milliseconds.
BIRTH_SECONDS = 2.0
log = logging.getLogger("runs.nursery")


class Nursery:
    """As the supervisor sees it."""

    def __init__(self, command: list[str]) -> None:
        """Start it: `command` and the number of a descriptor. From the main thread. Raises OSError."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())], stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
            )
        except OSError:
            self._control.close()
            raise
        finally:
            theirs.close()
        self._control.settimeout(BIRTH_SECONDS)
        self.is_warm = False
        self._started_at = monotonic()

    def fileno(self) -> int:
        """Turns readable when it is warm, and when it has died."""
        return self._control.fileno()

    def listen(self) -> None:
        if not self.is_warm and select.select([self._control], [], [], 0)[0]:
            with suppress(OSError):
                self.is_warm = self._control.recv(64) == WARM

    def trouble(self) -> str | None:
        """Why there must be another one, or None."""
        if self.process.poll() is not None:
            return "died"
        if not self.is_warm and monotonic() - self._started_at > WARM_SECONDS:
            return f"did not come up within {WARM_SECONDS:g} s"
        return None

    def bear(self, number: int, report: int) -> int:
        """Have cluster `number` forked, which reports through the pipe `report`. The pid of its main process. Raises OSError: then the
        nursery is good for nothing, and should a cluster have been born all the same, it ends with its pipe."""
        socket.send_fds(self._control, [b"%d" % number], [report])
        pid = int(self._control.recv(64) or 0)
        if not pid:
            raise ChildProcessError("the nursery could not fork")
        return pid

    def end(self) -> None:
        """SIGKILL: there is nothing in it that could be lost."""
        self.process.kill()
        self.process.wait()
        self._control.close()
        for found in processes.of_session(self.process.pid):  # one that was just forking
            processes.send(found.pid, found.born_ticks, signal.SIGKILL)


def nurse(control: int, become: Callable[[int, int], NoReturn]) -> NoReturn:
    """Be the nursery: `become(number, report)` in a process of its own for each that is asked for, until the supervisor hangs up."""
    supervisor = os.getppid()
    link = socket.socket(fileno=control)
    gc.collect()
    gc.freeze()
    link.send(WARM)
    while True:
        asked, handed, *_ = socket.recv_fds(link, 64, 1)
        if not asked:
            os._exit(0)
        (report,) = handed
        try:
            between = os.fork()
        except OSError:
            log.exception("no process could be forked")
            link.send(b"0")
        else:
            if not between:
                _hand_over(link, supervisor, partial(become, int(asked), report))
            os.waitpid(between, 0)
        os.close(report)


def _hand_over(link: socket.socket, supervisor: int, become: Callable[[], NoReturn]) -> NoReturn:
    """Fork once more and end: the kernel gives the orphan to the nearest ancestor that adopts, which is the supervisor."""
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
        log.exception("a cluster was not born")
        if os.getpid() == between:
            link.send(b"0")
        logging.shutdown()
        os._exit(1)


def command(boot: str, checkout: str) -> list[str]:
    """What to exec, but for the descriptor."""
    return [sys.executable, "-c", boot, checkout, str(os.getpid()), "cluster", "--nursery"]
