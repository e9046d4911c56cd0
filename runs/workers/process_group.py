"""The supervisor's handle on one cluster's process tree, from its start until the last process is reaped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from uuid import UUID

from runs.fleet import procfs
from runs.fleet.members import Sign
from runs.fleet.procfs import Identity
from runs.workers import forkserver
from runs.workers.forkserver import Nursery

CHECKOUT = Path(__file__).resolve().parents[2]
# The process is tied to its parent before any other import, so that a dying supervisor leaves no process that still
# loads Django. This isn't a script in this folder, whose queue.py would hide the standard library's.
BOOT = """
import sys
sys.path[0] = sys.argv.pop(1)
from runs.fleet.procfs import tie_to_parent
tie_to_parent(int(sys.argv.pop(1)))
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
# The worker sends a pulse every second. A loop that is silent for this long drives nothing, but would keep its runs
# forever.
STALE_SECONDS = 10.0
# Time from exec to the first pulse, with all imports, on a machine that starts everything at once.
READY_SECONDS = 60.0
HAS_PIDFD = hasattr(os, "pidfd_open")


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the tree.
    `handle` is readable when the process has died, if the kernel supports that."""

    role: str
    identity: Identity
    incarnation: UUID
    handle: int | None

    @property
    def is_dead(self) -> bool:
        return not procfs.is_running(self.identity.pid, self.identity.born_ticks)

    def __str__(self) -> str:
        return f"{self.role} {self.identity.pid}"


def new_nursery() -> Nursery:
    """Start a nursery with the code on disk. Raises OSError."""
    return Nursery(forkserver.by_exec(forkserver.command(BOOT, str(CHECKOUT))))


def _exec(number: int, report: int) -> int:
    """Start a cluster without a nursery. Returns its pid."""
    command = [sys.executable, "-c", BOOT, str(CHECKOUT), str(os.getpid()), "cluster", f"--report={report}"]
    sentinel = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(report,), start_new_session=True)
    assert sentinel.stdin is not None
    with suppress(BrokenPipeError), sentinel.stdin:  # the process has died meanwhile, which the next check will find
        sentinel.stdin.write(b"%d\n" % number)
    sentinel.returncode = 0  # reaped here, like a forked one
    return sentinel.pid


class Tree:
    """A cluster: its sentinel is a child of this process and leads its own session."""

    def __init__(self, number: int, born_by: Nursery | None) -> None:
        """Start the cluster.
        Call this in the main thread, because children die with the thread that started them. Raises OSError."""
        report, theirs = os.pipe()
        try:
            self.sentinel_pid = _exec(number, theirs) if born_by is None else born_by.bear(number, theirs)
        except OSError:
            os.close(report)
            raise
        finally:
            os.close(theirs)
        os.set_blocking(report, False)
        self.report = report
        self.number = number
        self.members: list[Member] = []
        self.started_at = monotonic()
        self.is_ready = self.is_serving = False
        self.is_reported = False
        self._unread = b""
        self._silent_seconds = 0.0
        self._observed_at = self.started_at

    @property
    def age_seconds(self) -> float:
        return monotonic() - self.started_at

    @property
    def worker(self) -> Member | None:
        return next((member for member in self.members if member.role == "worker"), None)

    def signs(self) -> list[Sign]:
        """Return heartbeats for all processes except the worker, which sends its own."""
        return [Sign("cluster", member.identity) for member in self.members if member.role != "worker"]

    def handles(self) -> list[int]:
        """Return descriptors that are readable when something happens in the tree."""
        return [self.report, *(member.handle for member in self.members if member.handle is not None)]

    # --- its reports --------------------------------------------------------------------------------------------------

    def listen(self) -> list[Member]:
        """Read the tree's new reports. Returns the newly reported processes."""
        now = monotonic()
        # Only time in which the supervisor was running counts. If the supervisor itself was stopped, the silence proves
        # nothing.
        self._silent_seconds += min(now - self._observed_at, 1.0)
        self._observed_at = now
        *lines, self._unread = (self._unread + self._read()).split(b"\n")
        members = []
        for line in lines:
            if line in (b"pulse", b"serving"):
                self.is_ready, self._silent_seconds = True, 0.0
                self.is_serving = self.is_serving or line == b"serving"
            else:
                members.append(_member(line.decode()))
        self.members += members
        return members

    def trouble(self) -> str | None:
        """Return why this tree must be replaced, or None."""
        if dead := next((member for member in self.members if member.is_dead), None):
            return f"{dead} died"
        if not self.members and self._is_sentinel_dead():
            return f"sentinel {self.sentinel_pid} died while starting"
        limit = STALE_SECONDS if self.is_ready else READY_SECONDS
        if self._silent_seconds > limit:
            who = self.worker or f"sentinel {self.sentinel_pid}"
            return f"{who} sent no heartbeat for {limit:g} s"
        return None

    # --- its end ------------------------------------------------------------------------------------------------------

    def drain(self) -> bool:
        """Ask the worker to drain. Return False if there is no worker."""
        worker = self.worker
        return worker is not None and procfs.send(worker.identity.pid, worker.identity.born_ticks, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL all processes. `is_over` tells when all of them are gone."""
        for member in self.members:
            procfs.send(member.identity.pid, member.identity.born_ticks, signal.SIGKILL)
        # The process isn't reaped yet, so its pid is still its own.
        os.kill(self.sentinel_pid, signal.SIGKILL)

    def is_over(self) -> bool:
        """Return whether the session's last process is dead and reaped.
        Kills processes that were just being forked. The sentinel is reaped here, after all others, so that its pid,
        which is also the session's id, can't be reused earlier. Adopted processes are reaped by `procfs.reap_orphans`;
        until then, the result is False."""
        is_empty = True
        for entry in procfs.of_session(self.sentinel_pid):
            if entry.pid == self.sentinel_pid:
                continue
            if not entry.is_dead:
                is_empty = False
                procfs.send(entry.pid, entry.born_ticks, signal.SIGKILL)
            elif entry.parent == os.getpid():
                is_empty = False
        return is_empty and self._is_sentinel_dead() and self._reap_sentinel()

    def close(self) -> None:
        for handle in self.handles():
            os.close(handle)

    def _is_sentinel_dead(self) -> bool:
        entry = procfs.stat(self.sentinel_pid)
        return entry is None or entry.is_dead

    def _reap_sentinel(self) -> bool:
        try:
            return os.waitpid(self.sentinel_pid, os.WNOHANG)[0] == self.sentinel_pid
        # The process died before the supervisor adopted it. Its new parent becomes visible shortly.
        except ChildProcessError:
            return procfs.stat(self.sentinel_pid) is None

    def _read(self) -> bytes:
        whole = b""
        try:
            while piece := os.read(self.report, 65536):
                whole += piece
        except BlockingIOError:
            pass
        return whole


def _member(line: str) -> Member:
    role, pid, born_ticks, incarnation = line.split()
    identity = Identity(procfs.host(), procfs.boot(), int(pid), int(born_ticks))
    handle = None
    if HAS_PIDFD:
        try:
            handle = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            pass  # The process is already dead and reaped, which the next check finds from its start time.
    return Member(role, identity, UUID(incarnation), handle)
