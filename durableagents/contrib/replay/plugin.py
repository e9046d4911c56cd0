"""The pytest plugin: `pytest --checkpoints DIR` replays each file in DIR with the current code, as a test.

An agent's own tests can use the fixture `checkpoint`, the path of a file, and run once for each file."""

# `--checkpoints-agents` names the agents' modules (default: DURABLEAGENTS_AGENTS). `--checkpoints-dump` is a folder for
# failing files. `--checkpoints-newest` lets an agent's newest version replace a missing one.

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from durableagents.contrib.replay.checkpoints import CheckpointDiffers, checkpoint_files, replay_checkpoint

_DIRECTORY = "checkpoints"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options in a group of their own."""
    group = parser.getgroup("durableagents", "Durable Agents: replay recorded runs")
    group.addoption("--checkpoints", metavar="DIR", help="replay every file of `manage.py checkpoints export` in DIR")
    group.addoption("--checkpoints-agents", metavar="MODULES", default=None, help="modules with the agents, by commas")
    group.addoption("--checkpoints-dump", metavar="DIR", help="folder for the failing ones, each with its difference")
    group.addoption(
        "--checkpoints-newest", action="store_true", help="use the newest version if a version no longer exists"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Import the agents before collection. Raises UsageError."""
    if not config.getoption(_DIRECTORY):
        return
    named = config.getoption("checkpoints_agents")
    for module in (os.environ.get("DURABLEAGENTS_AGENTS", "") if named is None else named).split(","):
        try:
            if module.strip():
                importlib.import_module(module.strip())
        except ImportError as error:
            raise pytest.UsageError(f"--checkpoints-agents: {module.strip()}: {error}") from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that use `checkpoint` with the files; without `--checkpoints` there are none."""
    if "checkpoint" in metafunc.fixturenames:
        files = _files(metafunc.config)
        metafunc.parametrize("checkpoint", files, ids=[file.stem for file in files])


def _files(config: pytest.Config) -> list[Path]:
    directory = config.getoption(_DIRECTORY)
    if not directory:
        raise pytest.UsageError("a test uses `checkpoint`: give their folder with --checkpoints DIR")
    files = checkpoint_files(directory)
    if not files:
        raise pytest.UsageError(f"--checkpoints {directory}: there is no checkpoint in it")
    return files


def pytest_collection(session: pytest.Session) -> None:
    """Fail if the folder is empty."""
    if session.config.getoption(_DIRECTORY):
        _files(session.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the replays to the collected tests."""
    if config.getoption(_DIRECTORY):
        held = Checkpoints.from_parent(session, name="checkpoints")
        items.extend(held.collect())


class Checkpoints(pytest.Collector):
    """Collects all files of the folder."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one test for each file."""
        for file in _files(self.config):
            yield CheckpointItem.from_parent(self, name=file.stem, file=file)


class CheckpointItem(pytest.Item):
    """The replay of one file."""

    def __init__(self, *, file: Path, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.file = file

    def runtest(self) -> None:
        """Replay the file. Raises CheckpointDiffers."""
        options = self.config
        replay_checkpoint(
            self.file, newest=options.getoption("checkpoints_newest"), dump=options.getoption("checkpoints_dump")
        )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """Return the difference as text."""
        if isinstance(excinfo.value, CheckpointDiffers):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the test's location in reports."""
        return self.file, 0, f"checkpoint {self.file.name}"
