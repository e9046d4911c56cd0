"""Real processes: a supervisor with its workers, a web server, and a listener for tools' reports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from runs.connections import dsn
from runs.fleet import procfs
from tests.system.bench.agents import SOCKET_VARIABLE
from tests.system.bench.place import CHECKOUT
from tests.waiting import eventually

PATIENCE_SECONDS = 60.0
_ALIVE = "SELECT pid FROM runs_process WHERE kind = 'worker' AND ended_at IS NULL"


@dataclass(frozen=True, slots=True)
class Told:
    """A tool's report: run, event, time by the monotonic clock, process, key."""

    run_id: str
    what: str
    at: float
    pid: int
    key: str | None


class Ears:
    """Receives tools' reports: the bench's clock, and its count of effects."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "ears")
        self.heard: list[Told] = []
        self._news = threading.Condition()
        self._link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._link.bind(self.path)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            found = Told(*json.loads(self._link.recv(4096)))
            with self._news:
                self.heard.append(found)
                self._news.notify_all()

    def wait(self, wanted: Callable[[Told], bool], *, count: int = 1) -> Told:
        seen, left = 0, count
        with self._news:
            while True:
                for entry in self.heard[seen:]:
                    left -= wanted(entry)
                    if not left:
                        return entry
                seen = len(self.heard)
                if not self._news.wait(PATIENCE_SECONDS):
                    raise TimeoutError("no tool told what was waited for")


class Crew:
    def __init__(self, process: subprocess.Popen[bytes], workers: int) -> None:
        self.process, self.workers = process, workers

    def serving(self) -> list[int]:
        with psycopg.connect(dsn(name="bench"), autocommit=True) as link:
            known = [pid for (pid,) in link.execute(_ALIVE)]
        return [pid for pid in known if (found := procfs.stat(pid)) is not None and not found.is_dead]

    def complete(self) -> None:
        eventually(lambda: len(self.serving()) == self.workers, "all workers serving")

    def memory(self) -> int:
        """Return the bytes in memory of the supervisor and all below it; shared pages count once."""
        total = 0
        for process in [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        return total


@contextmanager
def crew(folder: Path, ears: Ears, *, workers: int, slots: int) -> Iterator[Crew]:
    command = [sys.executable, "manage.py", "worker", "--processes", str(workers), "--slots", str(slots)]
    with (folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=CHECKOUT, env={**os.environ, SOCKET_VARIABLE: ears.path}, stderr=log, start_new_session=True
        )
    try:
        made = Crew(process, workers)
        made.complete()
        yield made
    finally:
        _end(process)


@contextmanager
def web(folder: Path) -> Iterator[int]:
    reading, writing = os.pipe()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    command = [sys.executable, "manage.py", "web", "--fd", str(listener.fileno()), "--ready-fd", str(writing)]
    with (folder / "web.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=CHECKOUT, stderr=log, stdout=log, pass_fds=(listener.fileno(), writing), start_new_session=True
        )
    os.close(writing)
    try:
        if not os.read(reading, 100):
            raise RuntimeError(f"the web process did not start: {(folder / 'web.log').read_text()[-2000:]}")
        yield int(listener.getsockname()[1])
    finally:
        os.close(reading)
        listener.close()
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it at once; a supervisor needs a second signal for that."""
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(0.3)
            return
        except subprocess.TimeoutExpired:
            continue
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
