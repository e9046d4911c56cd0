"""Child processes: they end with us, restart with growing pauses, and are found after our death."""

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

from durableagents.server import child_processes
from runs.fleet import members
from tests.waiting import eventually

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
ENV = {"PATH": os.environ["PATH"], child_processes.MARKER: "test-mark"}


def child(argv: list[str], tmp_path: Path) -> child_processes.Child:
    return child_processes.Child("part", argv, env=ENV, log=tmp_path / "part.log", cwd=tmp_path, drain_seconds=1)


def test_lines_of_a_child_are_read_whole_and_once_across_its_restarts(tmp_path: Path) -> None:
    lines = child_processes.Lines()
    assert lines.take() == []
    os.write(lines.theirs, b"first\nhal")
    assert lines.take() == ["first"] and lines.take() == []
    for text in ("f\n", "of another\n"):
        code = f"import os; os.write({lines.theirs}, {text!r}.encode())"
        process = child_processes.spawn(
            [sys.executable, "-c", code], env=ENV, log=tmp_path / "log", pass_fds=[lines.theirs]
        )
        assert process.wait(30) == 0
    assert lines.take() == ["half", "of another"]
    lines.close()


def test_a_report_never_waits_for_anyone_who_reads() -> None:
    lines = child_processes.Lines()
    report = members.Report(os.dup(lines.theirs))
    for _ in range(2000):
        report.write(members.GIVEN_UP + "it\nbroke " + "x" * 1000)
    take = lines.take()
    assert take[0].startswith("given up: it broke x") and {len(line) for line in take} == {400}
    lines.close()
    report.write(members.DONE)
    members.Report(None).write(members.DONE)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from durableagents.server import child_processes\n"
        f"child = child_processes.spawn({SLEEP!r}, env={{}}, log=Path({str(tmp_path / 'log')!r}))\n"
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
            child_processes.die_with_parent(signal.SIGKILL)
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
    assert pauses[1] < pauses[2] < pauses[3] <= part.MAX_PAUSE_SECONDS


def test_an_end_is_told_once_and_in_words(tmp_path: Path) -> None:
    part = child(SLEEP, tmp_path)
    part.start()
    assert part.ended() is None and not part.is_due()
    part.kill()
    assert eventually(part.ended, "the child's end", 10) == "signal SIGKILL"
    assert part.ended() is None and part.is_due()


def test_strays_are_found_by_mark_and_by_memory_and_ended(tmp_path: Path) -> None:
    # Their parent ended normally, so no parent-death signal reached them.
    script = (
        "import subprocess, sys\n"
        f"for env in ({{'{child_processes.MARKER}': 'test-mark'}}, {{}}):\n"
        f"    print(subprocess.Popen({SLEEP!r}, env=env, start_new_session=True).pid, flush=True)"
    )
    done = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert done.stdout is not None
    marked, unmarked = (psutil.Process(int(done.stdout.readline())) for _ in range(2))
    done.wait()
    done.stdout.close()
    remembered = {unmarked.pid: unmarked.create_time(), os.getppid(): 1.0}
    eventually(lambda: len(child_processes.strays("test-mark", remembered)) == 2, "two strays", 10)
    assert {each.pid for each in child_processes.strays("test-mark", {})} == {marked.pid}
    child_processes.end_strays("test-mark", remembered, patience_seconds=0.1, idle=time.sleep)
    assert child_processes.strays("test-mark", remembered) == []


def test_our_own_children_are_no_strays(tmp_path: Path) -> None:
    part = child(SLEEP, tmp_path)
    part.start()
    assert child_processes.strays("test-mark", {}) == []
    part.kill()
    eventually(part.ended, "the child's end", 10)


def test_a_log_past_the_limit_keeps_one_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "LOG_LIMIT_BYTES", 10)
    log = tmp_path / "web.log"
    log.write_text("short")
    child_processes.shorten_log(log)
    assert log.read_text() == "short"
    log.write_text("longer than ten bytes\nlast words\n\n")
    assert child_processes.last_line(log) == "last words"
    child_processes.shorten_log(log)
    assert log.read_text() == "" and "last words" in (tmp_path / "web.log.1").read_text()
    assert child_processes.last_line(log) == "" == child_processes.last_line(tmp_path / "none.log")
