"""The pytest plugin: `pytest --checkpoints DIR` makes a test of each file in DIR, which replays it by today's code.

`--checkpoints-agents` names the modules that hold the agents (DURABLEAGENTS_AGENTS unless given), `--checkpoints-dump`
a folder for those that fail, `--checkpoints-newest` lets the newest version of an agent stand in for one that is gone.
A test of your own takes the fixture `checkpoint`, the path of one file, and is run for each.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from durableagents.testing.replays import CheckpointDiffers, checkpoint_files, replay_checkpoint

_DIRECTORY = "checkpoints"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("durableagents", "Durable Agents: replay what real runs have on record")
    group.addoption("--checkpoints", metavar="DIR", help="replay every file of `manage.py checkpoints export` in DIR")
    group.addoption("--checkpoints-agents", metavar="MODULES", default=None, help="modules with the agents, by commas")
    group.addoption("--checkpoints-dump", metavar="DIR", help="keep those that fail here, each with its difference")
    group.addoption("--checkpoints-newest", action="store_true", help="by the newest version, where one is gone")


def pytest_configure(config: pytest.Config) -> None:
    """The agents, before anything is collected. A module that can't be imported is an error of usage."""
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
    """A test that takes `checkpoint` is one test for each file; without `--checkpoints` it has none, and says so."""
    if "checkpoint" in metafunc.fixturenames:
        files = _files(metafunc.config)
        metafunc.parametrize("checkpoint", files, ids=[file.stem for file in files])


def _files(config: pytest.Config) -> list[Path]:
    directory = config.getoption(_DIRECTORY)
    if not directory:
        raise pytest.UsageError("a test takes `checkpoint`: say where they are, with --checkpoints DIR")
    files = checkpoint_files(directory)
    if not files:
        raise pytest.UsageError(f"--checkpoints {directory}: there is no checkpoint in it")
    return files


def pytest_collection(session: pytest.Session) -> None:
    """An empty folder is no success."""
    if session.config.getoption(_DIRECTORY):
        _files(session.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Beside whatever else is collected."""
    if config.getoption(_DIRECTORY):
        held = Checkpoints.from_parent(session, name="checkpoints")
        items.extend(held.collect())


class Checkpoints(pytest.Collector):
    """All files of the folder."""

    def collect(self) -> Iterator[pytest.Item]:
        """One test for each."""
        for file in _files(self.config):
            yield CheckpointItem.from_parent(self, name=file.stem, file=file)


class CheckpointItem(pytest.Item):
    """The replay of one file."""

    def __init__(self, *, file: Path, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.file = file

    def runtest(self) -> None:
        """Replay it. Raises CheckpointDiffers."""
        options = self.config
        replay_checkpoint(
            self.file, newest=options.getoption("checkpoints_newest"), dump=options.getoption("checkpoints_dump")
        )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """The difference, in words."""
        if isinstance(excinfo.value, CheckpointDiffers):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """What a list of tests shows."""
        return self.file, 0, f"checkpoint {self.file.name}"
