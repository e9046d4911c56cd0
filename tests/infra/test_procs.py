"""Child processes: tied to our life, restarted with growing pauses, found again after our death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from durableagents import procs
from tests.infra.installation import eventually

pytestmark = pytest.mark.processes
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
ENV = {"PATH": os.environ["PATH"], procs.MARKER: "test-mark"}


def child(argv: list[str], tmp_path: Path) -> procs.Child:
    return procs.Child(
        "part", argv, env=ENV, log=tmp_path / "part.log", cwd=tmp_path, drain_seconds=1
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from durableagents import procs\n"
        f"child = procs.spawn({SLEEP!r}, env={{}}, log=Path({str(tmp_path / 'log')!r}))\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    grandchild = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs([grandchild], timeout=10)
    assert alive == [] or grandchild.status() == psutil.STATUS_ZOMBIE


def test_children_are_spawned_from_the_main_thread_only() -> None:
    caught: list[BaseException] = []

    def try_it() -> None:
        try:
            procs.die_with_parent(signal.SIGKILL)
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()
    assert len(caught) == (1 if sys.platform == "linux" else 0)


def test_a_killed_child_is_due_at_once_and_one_that_keeps_dying_waits(tmp_path: Path) -> None:
    part = child([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)
    pauses = []
    for _ in range(4):
        part.start()
        how = eventually(part.ended, "the child's end", 10)
        assert how == "exit code 3"
        pauses.append(part._not_before - time.monotonic())
    assert pauses[0] <= 0
    assert pauses[1] < pauses[2] < pauses[3] <= part.LONGEST_PAUSE_SECONDS


def test_an_end_is_told_once_and_in_words(tmp_path: Path) -> None:
    part = child(SLEEP, tmp_path)
    part.start()
    assert part.ended() is None and not part.is_due()
    part.kill()
    assert eventually(part.ended, "the child's end", 10) == "signal SIGKILL"
    assert part.ended() is None and part.is_due()


def test_strays_are_found_by_mark_and_by_memory_and_ended(tmp_path: Path) -> None:
    # Their parent ended in good order, so no parent-death signal reached them.
    script = (
        "import subprocess, sys\n"
        f"for env in ({{'{procs.MARKER}': 'test-mark'}}, {{}}):\n"
        f"    print(subprocess.Popen({SLEEP!r}, env=env, start_new_session=True).pid, flush=True)"
    )
    done = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert done.stdout is not None
    marked, unmarked = (psutil.Process(int(done.stdout.readline())) for _ in range(2))
    done.wait()
    done.stdout.close()
    remembered = {unmarked.pid: unmarked.create_time(), os.getppid(): 1.0}
    eventually(lambda: len(procs.strays("test-mark", remembered)) == 2, "two strays", 10)
    assert {each.pid for each in procs.strays("test-mark", {})} == {marked.pid}
    procs.end_strays("test-mark", remembered, patience_seconds=0.1, idle=time.sleep)
    assert procs.strays("test-mark", remembered) == []


def test_our_own_children_are_no_strays(tmp_path: Path) -> None:
    part = child(SLEEP, tmp_path)
    part.start()
    assert procs.strays("test-mark", {}) == []
    part.kill()
    eventually(part.ended, "the child's end", 10)


def test_a_log_past_the_limit_keeps_one_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procs, "LOG_LIMIT_BYTES", 10)
    log = tmp_path / "web.log"
    log.write_text("short")
    procs.shorten_log(log)
    assert log.read_text() == "short"
    log.write_text("longer than ten bytes\nlast words\n\n")
    assert procs.last_line(log) == "last words"
    procs.shorten_log(log)
    assert log.read_text() == "" and "last words" in (tmp_path / "web.log.1").read_text()
    assert procs.last_line(log) == "" == procs.last_line(tmp_path / "none.log")
