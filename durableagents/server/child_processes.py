"""Start, watch and end child processes that can't outlive this one, and find strays of an earlier one."""

# Each child has its own session (a Ctrl-C reaches only `up`, which drains in order) and a parent-death signal (a
# SIGKILL of `up` ends it). Only Linux has parent-death signals. Elsewhere, the next start ends leftover processes.

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import psutil

from durableagents.env import CHECKOUT, ensure_directory
from runs.backoff import pause_seconds
from runs.fleet import procfs

# All descendants of an installation have its id in this environment variable, which lets the next start recognise
# strays.
MARKER = "DURABLEAGENTS_UP"
LOG_LIMIT_BYTES = 10_000_000


@dataclass(frozen=True)
class Account:
    """The system account that a child runs under."""

    name: str
    uid: int
    gid: int


def die_with_parent(signum: int) -> Callable[[], None]:
    """Return a function for a child to call between fork and exec, so that it is signalled when this process dies.

    Linux clears the setting on a change of user, so Popen's `user=` must come first (preexec_fn runs last). Linux binds
    it to the *thread* that forked, so only the main thread may fork: it lives as long as the process.
    """
    if not procfs.IS_LINUX:
        return lambda: None
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children are spawned from the main thread only")
    return partial(procfs.tie_to_parent, os.getpid(), signum)


def spawn(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    log: Path,
    death_signal: int = signal.SIGKILL,
    account: Account | None = None,
    cwd: Path = Path("/"),
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `argv` in its own session, with its output appended to `log`. The child ends when this process dies."""
    ensure_directory(log.parent)
    # With O_APPEND, concurrent writers don't overwrite each other, and the file may be truncated.
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [os.fspath(part) for part in argv],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            pass_fds=pass_fds,
            preexec_fn=die_with_parent(death_signal),
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    finally:
        os.close(descriptor)


class Child:
    """A process that `up` keeps alive and restarts with growing pauses.

    The first restart is immediate. A child that keeps dying soon after its start waits 0.5, 1, 2 … 10 seconds, to spare
    CPU and log.
    """

    YOUNG_SECONDS = 5.0
    FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 10.0

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        log: Path,
        cwd: Path,
        drain_seconds: float,
        pass_fds: Sequence[int] = (),
        stop_signal: int = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.argv = argv
        self.env = env
        self.log = log
        self.cwd = cwd
        self.drain_seconds = drain_seconds
        self.pass_fds = pass_fds
        self.stop_signal = stop_signal
        self.process: subprocess.Popen[bytes] | None = None
        self._young_deaths = 0
        self._started = 0.0
        self._not_before = 0.0

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def start(self) -> None:
        self._started = time.monotonic()
        self.process = spawn(self.argv, env=self.env, log=self.log, cwd=self.cwd, pass_fds=self.pass_fds)

    def ended(self) -> str | None:
        """Return once per death how the process ended; None while it is alive or waits for its restart."""
        if self.process is None:
            return None
        code = self.process.poll()
        if code is None:
            return None
        self.process = None
        now = time.monotonic()
        self._young_deaths = self._young_deaths + 1 if now - self._started < self.YOUNG_SECONDS else 0
        self._not_before = now + pause_seconds(
            self._young_deaths - 1, first=self.FIRST_PAUSE_SECONDS, longest=self.MAX_PAUSE_SECONDS
        )
        return how_it_ended(code)

    def is_due(self) -> bool:
        return self.process is None and time.monotonic() >= self._not_before

    def terminate(self) -> None:
        self.signal(self.stop_signal)

    def signal(self, signum: int) -> None:
        if self.process is not None:
            send(self.process.pid, signum)

    def kill(self) -> None:
        if self.process is not None:
            send(self.process.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None


def send(pid: int, signum: int) -> None:
    """Signal a process, which may already have ended."""
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def last_line(log: Path, *, containing: str = "") -> str:
    """Return the last line of a log that isn't empty, for messages; "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 65_536))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    matching = [line.strip() for line in lines if line.strip() and containing in line]
    return matching[-1] if matching else ""


class Lines:
    """Lines that a child writes to a file descriptor (`theirs`), which it is given at each start."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self._begun = b""

    def take(self) -> list[str]:
        """Return the lines written since the last call."""
        while True:
            try:
                # EOF never comes, since this process holds the writing end too
                self._begun += os.read(self._ours, 4096)
            except BlockingIOError:
                break
        *whole, self._begun = self._begun.split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> None:
        os.close(self._ours)
        os.close(self.theirs)


def shorten_log(log: Path) -> None:
    """Copy an oversized log to `<name>.1` and truncate it.

    The log isn't renamed, since the child keeps writing to its open file.
    """
    try:
        if log.stat().st_size <= LOG_LIMIT_BYTES:
            return
        shutil.copyfile(log, log.with_name(log.name + ".1"))
        os.truncate(log, 0)
    except OSError:
        # The disk is full. The next call tries again.
        return


def family() -> dict[int, float]:
    """Return our descendants as pid → start time.

    They are saved for the next start, since a process that sets its title overwrites the environment with the marker.
    """
    started: dict[int, float] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            started[process.pid] = process.create_time()
        except psutil.Error:
            continue
    return started


def strays(mark: str, remembered: Mapping[int, float]) -> list[psutil.Process]:
    """Return living processes of this installation that aren't our descendants."""
    ours = set(family()) | {os.getpid()}
    return [
        process for process in psutil.process_iter() if process.pid not in ours and _is_of(process, mark, remembered)
    ]


def _is_of(process: psutil.Process, mark: str, remembered: Mapping[int, float]) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            # It has ended, and waits only for its parent. It no longer holds a port or file.
            return False
        if remembered.get(process.pid) == process.create_time():
            return True
        return process.environ().get(MARKER) == mark
    except (psutil.Error, OSError):
        # It has ended by now, or belongs to another user.
        return False


def end_strays(
    mark: str,
    remembered: Mapping[int, float],
    *,
    patience_seconds: float,
    idle: Callable[[float], None],
) -> None:
    """Wait for processes that a killed `up` left behind, then kill those that still run.

    Processes are identified by pid *and* start time (psutil compares both), so that a reused pid is never hit.
    """
    deadline = time.monotonic() + patience_seconds
    while remaining := strays(mark, remembered):
        if time.monotonic() > deadline:
            for process in remaining:
                try:
                    process.kill()
                except psutil.Error:
                    continue
            psutil.wait_procs(remaining, timeout=5)
            return
        idle(0.1)


def give_memory_back() -> None:
    """Return free memory to the system. Does nothing where unsupported.

    The C library would otherwise keep it after large bodies and after start-up.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


# Shortest interval between restarts of a process that can't start.
_PAUSE_SECONDS = 1.0
_TICK_SECONDS = 0.1


class Webs:
    """Runs `count` web processes on `listener` until a signal comes."""

    def __init__(self, listener: socket.socket, count: int, *, patience_seconds: float, ready_fd: int | None) -> None:
        self._listener, self._count = listener, count
        self._patience_seconds, self._ready_fd = patience_seconds, ready_fd
        self._stop_signal: int | None = None
        self._is_second = False
        # Maps each process to the pipe on which it reports that it serves; None after the report.
        self._webs: dict[subprocess.Popen[bytes], int | None] = {}
        self._not_before = 0.0

    def run(self) -> int:
        """Run the processes and return the exit code."""
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
                preexec_fn=die_with_parent(signal.SIGTERM),
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
                _say(f"pid {process.pid} ended with {how_it_ended(process.returncode)}; starting another")
                self._not_before = time.monotonic() + _PAUSE_SECONDS

    def _hear(self) -> None:
        """Wait a tick, or until a process reports that it serves. Once all processes serve, report that."""
        silent = {pipe: process for process, pipe in self._webs.items() if pipe is not None}
        for pipe in select.select(list(silent), [], [], _TICK_SECONDS)[0]:
            if os.read(pipe, 64):
                os.close(pipe)
                self._webs[silent[pipe]] = None
            else:  # closed without a report: the process is about to end
                time.sleep(_TICK_SECONDS)
        if self._ready_fd is not None and len(self._webs) == self._count and not any(self._webs.values()):
            os.write(self._ready_fd, b"ready\n")
            os.close(self._ready_fd)
            self._ready_fd = None

    def _end(self, signum: int) -> int:
        """Forward the signal and wait for the processes; kill those still alive after their timeout."""
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
    """Serve with `count` processes until stopped; return the exit code."""
    return Webs(listener, count, patience_seconds=patience_seconds, ready_fd=ready_fd).run()


def _say(text: str) -> None:
    sys.stderr.write(f"web: {text}\n")
