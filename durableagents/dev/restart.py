"""Restart web and workers with the code on disk, without downtime (`manage.py up --restart`).

A failure ends the restart and leaves the old processes running.
"""

# The steps are: migrate → a new web process on the same socket → once it serves, the old one hands over and ends → the
# supervisor renews its workers one by one. They run in `up`'s own loop. Database, sandbox, supervisor and `up` itself
# are not restarted. A request is a SIGUSR1 to the pid in `up.lock`; progress is written to `up.restart`.

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from durableagents.env import EnvironmentProblem, replace_private
from durableagents.server import child_processes
from runs.fleet import members

if TYPE_CHECKING:
    import subprocess

STATUS_FILE = "up.restart"
WEB_READY_SECONDS = 60.0
HAND_OVER_SECONDS = 15.0
WORKERS_SECONDS = 600.0
_RUNNING, _DONE, _FAILED = "running", "done", "failed: "


class Failed(Exception):
    """The restart failed, and the old processes continue. The message is one line."""


class Installation(Protocol):
    """The interface of `up` that a restart uses."""

    data: Path
    children: list[child_processes.Child]
    renewals: child_processes.Lines

    def new_web(self) -> child_processes.Child: ...
    def begin_migration(self) -> tuple[subprocess.Popen[bytes], Path]: ...
    def tell(self, text: str) -> None: ...


class Restart:
    """One restart, which each call of `has_ended()` advances."""

    def __init__(self, up: Installation) -> None:
        self._up = up
        self._status = up.data / STATUS_FILE
        self._steps: Generator[None, None, None] = self._perform()

    def has_ended(self) -> bool:
        """Advance the restart without waiting, and return whether it has ended."""
        try:
            next(self._steps)
        except StopIteration:
            self._end(_DONE, "web and workers are restarted")
            return True
        except Failed as failure:
            self._end(f"{_FAILED}{failure}", f"the restart failed, and the old processes continue: {failure}")
            return True
        return False

    def abandon(self) -> None:
        """End processes that were started between two steps, because `up` itself ends."""
        self._steps.close()

    def _end(self, status: str, outcome: str) -> None:
        replace_private(self._status, status)
        self._up.tell(outcome)

    def _perform(self) -> Generator[None, None, None]:
        replace_private(self._status, _RUNNING)
        self._up.tell("restarting web and workers")
        yield from self._migrate()
        yield from self._renew_web()
        yield from self._renew_workers()

    def _migrate(self) -> Generator[None, None, None]:
        process, log = self._up.begin_migration()
        while process.poll() is None:
            yield
        if process.returncode:
            raise Failed(f"migrate failed: {child_processes.last_line(log)}; see {log}")

    def _renew_web(self) -> Generator[None, None, None]:
        new, plain = self._up.new_web(), self._up.new_web()
        ready, theirs = os.pipe()
        os.set_blocking(ready, False)
        new.argv, new.pass_fds = [*plain.argv, f"--ready-fd={theirs}"], [*plain.pass_fds, theirs]
        try:
            try:
                new.start()
            finally:
                os.close(theirs)
            yield from _until_ready(new, ready)
        except BaseException:  # the start failed or `up` ends: nothing else tracks this process yet
            new.kill()
            raise
        finally:
            os.close(ready)
        new.argv, new.pass_fds = plain.argv, plain.pass_fds
        old = next(child for child in self._up.children if child.name == "web")
        self._up.children[self._up.children.index(old)] = new
        yield from _handed_over(old)

    def _renew_workers(self) -> Generator[None, None, None]:
        supervisor = next(child for child in self._up.children if child.name == "supervisor")
        pid = supervisor.pid
        self._up.renewals.take()  # discards lines of an earlier renewal
        supervisor.signal(members.SIGNAL)
        deadline = time.monotonic() + WORKERS_SECONDS
        while True:
            for line in self._up.renewals.take():
                if line.startswith(members.GIVEN_UP):
                    raise Failed(f"the new workers did not start serving; see {supervisor.log}")
                if line == members.DONE:
                    return
            if supervisor.pid != pid:
                return  # the supervisor was restarted, and so were its workers
            if time.monotonic() > deadline:
                raise Failed(f"the workers were not renewed within {WORKERS_SECONDS:.0f} s; see {supervisor.log}")
            yield


def _until_ready(web: child_processes.Child, ready: int) -> Generator[None, None, None]:
    deadline = time.monotonic() + WEB_READY_SECONDS
    while True:
        try:
            if os.read(ready, 64):
                return
            raise Failed(f"the new web process doesn't serve: {child_processes.last_line(web.log)}; see {web.log}")
        except BlockingIOError:
            pass
        if time.monotonic() > deadline:
            raise Failed(f"the new web process did not serve within {WEB_READY_SECONDS:.0f} s; see {web.log}")
        yield


def _handed_over(old: child_processes.Child) -> Generator[None, None, None]:
    old.signal(signal.SIGTERM)
    deadline = time.monotonic() + HAND_OVER_SECONDS
    try:
        while not old.has_ended() and time.monotonic() < deadline:
            yield
    finally:
        if not old.has_ended():
            old.kill()


def ask(data: Path) -> None:
    """Restart web and workers of the `up` that runs on `data`; return when done. Raises EnvironmentProblem."""
    pid = _running(data)
    status = data / STATUS_FILE
    status.unlink(missing_ok=True)
    child_processes.send(pid, signal.SIGUSR1)
    while not (outcome := _read(status)).startswith((_DONE, _FAILED)):
        if pid != _running(data):
            raise EnvironmentProblem(f"up ended while it restarted web and workers; see {data / 'logs'}")
        time.sleep(0.2)
    if outcome.startswith(_FAILED):
        raise EnvironmentProblem(f"the restart failed: {outcome.removeprefix(_FAILED)}")


def _read(status: Path) -> str:
    try:
        return status.read_text()
    except FileNotFoundError:
        return ""


def _running(data: Path) -> int:
    """Return the pid of the `up` that runs on `data`, which holds the lock on its pid file."""
    try:
        with (data / "up.lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read())
    except (FileNotFoundError, ValueError):
        pass
    raise EnvironmentProblem(f"nothing is running on {data} (DURABLEAGENTS_DATA says where to look)")
