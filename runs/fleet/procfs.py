"""Information from the kernel about processes: identity, liveness, and ties between parent and child.
A pid with its start time is unique per boot and host. On systems other than Linux, psutil and a thread are used
instead."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psutil

IS_LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NAMESPACE = uuid.UUID("5b3f1c1e-6f0a-4c52-9a55-1f7d3c0b8e21")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Loaded at import, because a child that was just forked must not load libraries.
_libc = ctypes.CDLL(None, use_errno=True) if IS_LINUX else None


@dataclass(frozen=True, slots=True)
class Identity:
    """One incarnation of a process.
    `boot` consists of boot id and pid namespace, within which its pid is valid."""

    host: str
    boot: str
    pid: int
    born_ticks: int

    @property
    def age_seconds(self) -> float:
        now = time.clock_gettime(time.CLOCK_BOOTTIME) if IS_LINUX else time.time()
        return max(0.0, now - self.born_ticks / _TICKS_PER_SECOND)

    @property
    def started_at(self) -> datetime:
        """Return the start time on this machine's clock. Stored times are on the database's clock."""
        return datetime.now(UTC) - timedelta(seconds=self.age_seconds)


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/<pid>/stat that are used."""

    pid: int
    state: str
    parent: int
    session: int
    born_ticks: int
    threads: int = 1

    @property
    def is_dead(self) -> bool:
        """Return whether the process no longer runs code.
        A zombie whose other threads are still ending can't be reaped yet."""
        return self.state in "ZXx" and self.threads <= 1


@functools.cache
def host() -> str:
    return socket.gethostname()


@functools.cache
def boot() -> str:
    if not IS_LINUX:
        return f"{psutil.boot_time():.0f}"
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"


def stat(pid: int) -> Stat | None:
    """Return the kernel's data on `pid`; None if there is no such process."""
    if not IS_LINUX:
        return _stat_elsewhere(pid)
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name in parentheses may itself contain spaces and parentheses, so fields are counted from the last
            # one.
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) < 20:
        return None
    return Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]), int(fields[17]))


def _stat_elsewhere(pid: int) -> Stat | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            state = "Z" if process.status() == psutil.STATUS_ZOMBIE else "R"
            born = int(process.create_time() * _TICKS_PER_SECOND)
            return Stat(pid, state, process.ppid(), os.getsid(pid), born)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None
    except (psutil.AccessDenied, PermissionError):
        # It is another user's process, about which only its existence is known.
        return Stat(pid, "R", 0, 0, -1)


def identify(pid: int) -> Identity | None:
    """Return the incarnation with this pid; None if none is running."""
    process = stat(pid)
    if process is None or process.is_dead:
        return None
    return Identity(host(), boot(), pid, process.born_ticks)


def incarnation_id(identity: Identity) -> uuid.UUID:
    """Return the incarnation's id, which never changes."""
    return uuid.uuid5(_NAMESPACE, f"{identity.host}|{identity.boot}|{identity.pid}|{identity.born_ticks}")


def is_running(pid: int, born_ticks: int) -> bool:
    """Return whether this process runs on this host and boot; False for zombies."""
    process = stat(pid)
    return process is not None and not process.is_dead and process.born_ticks == born_ticks


def of_session(session: int) -> Iterator[Stat]:
    """Yield every process of a session, including zombies."""
    for pid in _all_pids():
        process = stat(pid)
        if process is not None and process.session == session:
            yield process


def _all_pids() -> list[int]:
    if IS_LINUX:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return psutil.pids()


def tie_to_parent(parent: int, signum: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent dies; exit if the parent is already dead.
    Call it in the main thread, after any change of user. The signal is bound to the thread that forked, so parents must
    fork in their main thread."""
    if _libc is not None:
        if _libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    else:
        threading.Thread(target=_watch_parent, args=(parent,), name="parent-watch", daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants in order to reap them, because not every init does."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(known: Container[int]) -> None:
    """Reap dead adopted children without blocking.
    `known` children, and those of our session, are left to other code."""
    if _libc is None or not _has_dead_child():
        return
    me, session = os.getpid(), os.getsid(0)
    for pid in _all_pids():
        child = stat(pid)
        if child is None or child.parent != me or child.session == session or pid in known:
            continue
        if child.is_dead:
            os.waitpid(pid, os.WNOHANG)


def _has_dead_child() -> bool:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def send(pid: int, born_ticks: int, signum: int) -> bool:
    """Signal exactly this incarnation; return False if it no longer exists."""
    try:
        if not hasattr(os, "pidfd_open"):
            if is_running(pid, born_ticks):
                os.kill(pid, signum)
                return True
            return False
        handle = os.pidfd_open(pid)
        try:
            # Compare only while holding the handle, which then can't refer to another process.
            if not is_running(pid, born_ticks):
                return False
            signal.pidfd_send_signal(handle, signum)
            return True
        finally:
            os.close(handle)
    except ProcessLookupError:
        return False
