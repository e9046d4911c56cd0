"""The pytest plugin as in another project: in a separate folder, by `-p`, with exported files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from durableagents.contrib.replay.files import file_text
from tests.conftest import CHECKOUT
from tests.contrib.replay.test_replays import approved, on_file, plain

AGENTS = "tests.unit.testing.desk"


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    recordings = [*on_file(plain()), *on_file(approved())][:3]
    for number, recording in enumerate(recordings):
        (folder / f"{number}.json").write_text(file_text(recording))
    return folder


def pytest_in(folder: Path, *args: str) -> tuple[int, str]:
    """Run pytest as a project's own CI does: no Django, no settings, no server."""
    completed = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "durableagents.contrib.replay.plugin",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:django",
            "--rootdir",
            str(folder),
            "-c",
            os.devnull,
            *args,
        ],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return completed.returncode, completed.stdout + completed.stderr


def test_each_file_is_a_test(tmp_path: Path, checkpoints: Path) -> None:
    code, found = pytest_in(tmp_path, "--checkpoints", "checkpoints", "--checkpoints-agents", AGENTS)
    assert code == 0 and "3 passed" in found, found


def test_a_difference_is_told_in_words_and_kept(tmp_path: Path, checkpoints: Path) -> None:
    file = checkpoints / "0.json"
    recorded = json.loads(file.read_text())
    recorded["events"][0]["payload"]["arguments"]["order_id"] = "A-9"
    file.write_text(json.dumps(recorded))
    args = ("--checkpoints", "checkpoints", "--checkpoints-agents", AGENTS, "--checkpoints-dump", "kept")
    code, found = pytest_in(tmp_path, *args)
    assert code == 1 and "1 failed, 2 passed" in found, found
    assert 'order_id is "A-9" in the record, but "A-1" from the code' in found and "Traceback" not in found
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_test_of_ones_own_is_run_for_each(tmp_path: Path, checkpoints: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "from durableagents.contrib.replay.checkpoints import replay_checkpoint\n"
        "def test_mine(checkpoint):\n    assert replay_checkpoint(checkpoint).answered >= 0\n"
    )
    code, found = pytest_in(tmp_path, "--checkpoints", "checkpoints", "--checkpoints-agents", AGENTS)
    assert code == 0 and "6 passed" in found, found
    code, found = pytest_in(tmp_path, "--checkpoints", "checkpoints")
    assert code == 1 and "installed are none: import their modules first (pytest: --checkpoints-agents" in found, found
    code, found = pytest_in(tmp_path)
    assert code != 0 and "give their folder with --checkpoints DIR" in found, found


def test_nothing_to_replay_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, found = pytest_in(tmp_path, "--checkpoints", "empty")
    assert code == 4 and "there is no checkpoint in it" in found, found
    code, found = pytest_in(tmp_path, "--checkpoints", "empty", "--checkpoints-agents", "no_such_module")
    assert code == 4 and "no_such_module" in found, found


def test_it_ships_as_a_plugin() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"durableagents": "durableagents.contrib.replay.plugin"}
    for package in ("approvals", "durableagents", "ledger", "runs"):
        assert (CHECKOUT / package / "py.typed").exists(), "type checkers take what authors import as untyped"
