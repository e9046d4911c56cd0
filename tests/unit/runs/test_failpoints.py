"""Crash points are armed from outside a running process, act once, and are refused where they could hurt."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from durableagents import env
from runs import failpoints
from runs.failpoints import FailpointHit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DURABLEAGENTS_FAILPOINT_DIR", str(tmp_path))
    monkeypatch.delenv("DURABLEAGENTS_FAILPOINTS", raising=False)
    monkeypatch.delenv("DURABLEAGENTS_ENV", raising=False)
    return tmp_path


def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the environment like a process that has just started."""
    known = env.load()
    armoury = failpoints._Armoury(known.failpoints, known.failpoint_dir)
    monkeypatch.setattr(failpoints, "_armoury", lambda: armoury)


def acts(point: str, tool: str = "", run: str = "") -> bool:
    try:
        failpoints.hit(point, tool, run)
    except FailpointHit:
        return True
    return False


def test_without_a_folder_nothing_is_armed_and_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURABLEAGENTS_FAILPOINT_DIR", raising=False)
    monkeypatch.delenv("DURABLEAGENTS_FAILPOINTS", raising=False)
    new_process(monkeypatch)
    monkeypatch.setattr("os.stat", lambda *args: pytest.fail("a file was looked up"))
    assert not acts("CP2", "pay")
    assert not failpoints.is_armed("CP2")


def test_a_point_acts_at_its_nth_hit_and_once_in_all_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLEAGENTS_FAILPOINTS", "CP2@pay:raise:2")
    new_process(monkeypatch)
    assert [acts("CP2", "pay"), acts("CP2", "look"), acts("CP4", "pay"), acts("CP2", "pay")] == [
        False,
        False,
        False,
        True,
    ]
    new_process(monkeypatch)
    assert [acts("CP2", "pay") for _ in range(3)] == [False] * 3


def test_the_file_arms_and_disarms_a_running_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_process(monkeypatch)
    assert not failpoints.is_armed("CP4")
    (folder / "armed").write_text("CP4:raise:1\nCP6:raise:1")
    assert failpoints.is_armed("CP4")
    assert acts("CP4")
    (folder / "armed").unlink()
    assert not acts("CP6")


def test_a_point_for_one_run_leaves_others_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "armed").write_text("CP5/run-1:raise:1")
    new_process(monkeypatch)
    assert not failpoints.is_armed("CP5", "run-2")
    assert not acts("CP5", run="run-2")
    assert failpoints.is_armed("CP5", "run-1")
    assert acts("CP5", run="run-1")


def test_a_point_armed_twice_acts_twice_and_one_with_a_plus_waits_for_the_one_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "armed").write_text("CP2:raise:1, +CP2:raise:1, +CP0:raise:1")
    new_process(monkeypatch)
    assert not acts("CP0")
    assert acts("CP2")
    new_process(monkeypatch)
    assert not acts("CP0")
    assert acts("CP2")
    new_process(monkeypatch)
    assert acts("CP0")


def stopped_child(folder: Path) -> tuple[int, int]:
    """Fork a process whose thread passes a point that stops it, then writes into the returned pipe."""
    (folder / "armed").write_text("CP4:stop:1")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            armoury = failpoints._Armoury("", folder)
            failpoints._armoury = lambda: armoury  # type: ignore[assignment]
            driving = threading.Thread(target=lambda: (failpoints.hit("CP4"), os.write(writing, b"x")), daemon=True)
            driving.start()
            driving.join()
        finally:
            os._exit(0)  # whatever happens, this must not become a second test run
    os.close(writing)
    os.waitpid(pid, os.WUNTRACED)
    (folder / "CP4_stop_1").unlink()
    return pid, reading


def test_nothing_runs_between_a_point_that_stops_and_the_stop(folder: Path) -> None:
    """Idle threads of the process could take the signal in its place."""
    for _ in range(20):
        pid, reading = stopped_child(folder)
        os.set_blocking(reading, False)
        try:
            with pytest.raises(BlockingIOError):
                os.read(reading, 1)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(reading)


@pytest.mark.parametrize(
    "text", ["CP99:kill:1", "CP2:kill", "CP2:explode:1", "CP2:kill:0", "CP2:kill:x", "+CP2:kill:1"]
)
def test_a_wrong_line_is_named(text: str, folder: Path) -> None:
    with pytest.raises(ValueError, match="is not"):
        failpoints.parse(text, folder)


@pytest.mark.parametrize("variable", ["DURABLEAGENTS_FAILPOINTS", "DURABLEAGENTS_FAILPOINT_DIR"])
def test_production_refuses_to_start_with_crash_points(
    variable: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DURABLEAGENTS_FAILPOINT_DIR")
    monkeypatch.setenv(variable, "CP2:kill:1")
    monkeypatch.setenv("DURABLEAGENTS_ENV", "production")
    with pytest.raises(env.EnvironmentProblem, match="production"):
        env.load()


def test_points_without_a_folder_to_note_them_in_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURABLEAGENTS_FAILPOINT_DIR", raising=False)
    monkeypatch.setenv("DURABLEAGENTS_FAILPOINTS", "CP2:kill:1")
    with pytest.raises(env.EnvironmentProblem, match="DURABLEAGENTS_FAILPOINT_DIR"):
        env.load()
