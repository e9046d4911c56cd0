"""A real `manage.py worker` with its clusters, and access to its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runs.fleet import members, procfs
from tests.conftest import CHECKOUT
from tests.system.fleet import agents
from tests.waiting import eventually


class Crew:
    """A supervisor under test. Its log and the stand-ins' notes are files, so they outlive their writers."""

    def __init__(
        self, env: dict[str, str], folder: Path, *, settings: str = "tests.system.fleet.standin_settings"
    ) -> None:
        self.notes_file, self.log_file = folder / "notes", folder / "supervisor.log"
        self.notes_file.touch()
        self._env = env | {
            "DJANGO_SETTINGS_MODULE": settings,
            "STANDIN_LOG": str(self.notes_file),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.sessions: set[int] = set()

    def start(self, *, processes: int = 1, wait: bool = True, **env: str) -> None:
        command = [sys.executable, str(CHECKOUT / "manage.py"), "worker", "--processes", str(processes), "--slots", "7"]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(command, env=self._env | env, stderr=log, start_new_session=True)
        if wait:
            eventually(lambda: len(self.serving()) == processes, what="all workers serving")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def notes(self, first_word: str) -> list[list[str]]:
        lines = [line.split() for line in self.notes_file.read_text().splitlines()]
        return [line[1:] for line in lines if line[0] == first_word]

    def serving(self) -> list[int]:
        pids = [int(pid) for pid, *_ in self.notes("serve")]
        return [pid for pid in pids if (found := procfs.stat(pid)) is not None and not found.is_dead]

    def incarnation(self, pid: int) -> str:
        return next(each for number, each, _ in self.notes("serve") if int(number) == pid)

    def tree(self, worker: int) -> dict[str, int]:
        return eventually(lambda: self._tree(worker), what="a whole cluster")

    def _tree(self, worker: int) -> dict[str, int]:
        found = procfs.stat(worker)
        if found is None:
            return {}
        self.sessions.add(found.session)
        return {"sentinel": found.session, "worker": worker}

    def descendants(self) -> list[int]:
        stats = [found for pid in os.listdir("/proc") if pid.isdigit() and (found := procfs.stat(int(pid)))]
        known = {self.pid}
        while more := {found.pid for found in stats if found.parent in known and not found.is_dead} - known:
            known |= more
        return sorted(known - {self.pid})

    def log(self) -> str:
        return self.log_file.read_text()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            left = self.descendants()
            self.process.kill()
            self.process.wait()
            eventually(lambda: not any(is_alive(pid) for pid in left), what="the supervisor's children ending with it")


def is_alive(pid: int) -> bool:
    found = procfs.stat(pid)
    return found is not None and not found.is_dead


@contextmanager
def hired(env: dict[str, str], folder: Path, **more: Any) -> Iterator[Crew]:
    """A crew that is ended afterwards, and whose log pytest shows when the test failed."""
    crew = Crew(env, folder, **more)
    yield crew
    crew.clean_up()
    print(crew.log())  # noqa: T201


@pytest.fixture
def crew(process_env: dict[str, str], tmp_path: Path) -> Iterator[Crew]:
    with hired(process_env, tmp_path) as crew:
        yield crew


@pytest.fixture
def real_crew(process_env: dict[str, str], tmp_path: Path) -> Iterator[Crew]:
    with hired(
        process_env | {"DURABLEAGENTS_AGENTS": agents.__name__}, tmp_path, settings="durableagents.settings"
    ) as crew:
        yield crew


@pytest.fixture(autouse=True)
def _no_link_left_open() -> Iterator[None]:
    """Close the heartbeats' connections per thread: they would block dropping the test database."""
    yield
    members.hang_up()
