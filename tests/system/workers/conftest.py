"""Worker processes whose clocks may be wrong, on the stage of tests/integration/runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT, database_urls, plain_env
from tests.contrib.limits import limited
from tests.integration.runs import clockwork
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, stage
from tests.integration.runs.stage import Stage

__all__ = ["_agents_of_this_test", "_django_db_marker", "stage"]
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def worker(stage: Stage, postgres: Mapping[str, str], tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a worker process with this clock error in seconds."""
    env = plain_env(tmp_path) | {
        "PYTHONPATH": str(CHECKOUT),
        "DJANGO_SETTINGS_MODULE": "durableagents.settings",
        "DATABASE_URL": database_urls(postgres)["runtime"],
        "DURABLEAGENTS_DATA": os.environ["DURABLEAGENTS_TEST_DATA"],
        "DURABLEAGENTS_RESTORE_HEAD": str(tmp_path / "restore.head"),  # the test before used the same folder
        "DURABLEAGENTS_AGENTS": f"{limited.__name__},{clockwork.__name__}",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(off: int = 0, **more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.runs.skewed", str(off)]
        started.append(subprocess.Popen(command, env=env | more, cwd=CHECKOUT, stdin=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) in (0, -signal.SIGKILL)
