"""No process of the worker tree stays a zombie, and no other code's exit status is taken."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runs.fleet import procfs
from tests.conftest import CHECKOUT
from tests.system.fleet.conftest import Crew
from tests.waiting import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not procfs.IS_LINUX, reason="elsewhere orphans are given to the first process of the system"),
]

_SEIZE, _WALL = 0x4206, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: (found := procfs.stat(pid)) is not None and found.state == "T", what=f"{pid} stopped")


@contextmanager
def slow_to_end(pid: int) -> Iterator[None]:
    """Hold one thread of a process, as in an uninterruptible call, so that its end is delayed."""
    thread = max(int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid)
    _libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if _libc.ptrace(_SEIZE, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"thread {thread} can't be traced")
    yield
    assert os.waitpid(thread, _WALL)[0] == thread


def first_thread_has_ended(pid: int) -> bool:
    found = procfs.stat(pid)
    return found is not None and found.state == "Z"


def left_of(session: int) -> list[procfs.Stat]:
    return list(procfs.of_session(session))


def test_a_stopped_worker_that_ends_slowly_is_dead_when_all_of_it_is_and_then_reaped(crew: Crew) -> None:
    crew.start(processes=1)
    (worker,) = crew.serving()
    tree, incarnation = crew.tree(worker), crew.incarnation(worker)
    stop(worker)
    with slow_to_end(worker):
        os.kill(tree["sentinel"], signal.SIGKILL)
        eventually(lambda: first_thread_has_ended(worker), what="the end of its first thread")
        eventually(lambda: set(crew.serving()) - {worker}, what="a new worker, while the old one is still ending")
        assert crew.notes("died") == []
    eventually(lambda: left_of(tree["sentinel"]) == [], what="the whole tree reaped")
    eventually(lambda: [died[0] for died in crew.notes("died")] == [incarnation], what="the report")


@pytest.fixture
def left(crew: Crew) -> Iterator[Callable[[], list[int]]]:
    def pids() -> list[int]:
        return [int(pid) for (pid,) in crew.notes("left")]

    yield pids
    for pid in pids():
        if (found := procfs.stat(pid)) is not None:
            procfs.send(pid, found.born_ticks, signal.SIGKILL)


def test_what_stopped_workers_left_running_is_reaped_too_once_it_ends(
    crew: Crew, left: Callable[[], list[int]]
) -> None:
    """A tool's process in its own session lives on as the supervisor's child."""
    crew.start(processes=2, STANDIN_BEHAVIOUR="leave a child")
    trees = [crew.tree(worker) for worker in crew.serving()]
    first, second = left()
    for pid in [pid for tree in trees for pid in tree.values()]:
        stop(pid)
    for pid in [pid for tree in trees for pid in tree.values()]:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(left_of(tree["sentinel"]) for tree in trees), what="both trees reaped")
    assert {parent(first), parent(second)} == {crew.pid}
    eventually(lambda: len(crew.serving()) == 2, what="two new workers")

    stop(first)
    os.kill(second, signal.SIGKILL)
    eventually(lambda: procfs.stat(second) is None, what="the one reaped, beside one that is stopped")
    assert parent(first) == crew.pid
    os.kill(first, signal.SIGKILL)
    eventually(lambda: procfs.stat(first) is None, what="the stopped one reaped")
    assert crew.stop() == 0


def parent(pid: int) -> int:
    found = procfs.stat(pid)
    return 0 if found is None else found.parent


def test_only_orphans_are_reaped_and_nobody_is_waited_for(tmp_path: Path) -> None:
    """The exit status of a process started here belongs to the code that started it."""
    script = tmp_path / "reaper.py"
    script.write_text(_REAPER, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    assert (done.stdout.split(), done.stderr) == (["3", "5", "7", "stopped", "reaped"], "")


# It starts one for `multiprocessing`, one that it declares and one for `subprocess`; two are orphans of a process that
# ended, of which one is stopped and one has ended.
_REAPER = """
import atexit, multiprocessing, os, signal, subprocess, sys, time
from runs.fleet import procfs

def until_dead(*pids):
    for pid in pids:
        while not procfs.stat(pid).is_dead:
            time.sleep(0.01)

procfs.reap_orphans([])  # with no child at all
procfs.adopt_orphans()
leave = (  # and end without looking at them, which would reap the one that has ended
    "import os, subprocess as s\\n"
    "apart = {'start_new_session': True, 'stdout': s.DEVNULL, 'stderr': s.DEVNULL}\\n"
    "both = [s.Popen(['sleep', seconds], **apart) for seconds in ('300', '0')]\\n"
    "print(*(each.pid for each in both), flush=True)\\n"
    "os._exit(0)"
)
left = subprocess.run([sys.executable, "-c", leave], stdout=subprocess.PIPE, check=True).stdout
stopped, ended = map(int, left.split())
atexit.register(procfs.send, stopped, procfs.stat(stopped).born_ticks, signal.SIGKILL)
forked = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
forked.start()
known = subprocess.Popen([sys.executable, "-c", "raise SystemExit(5)"], start_new_session=True)
ours = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
os.kill(stopped, signal.SIGSTOP)
until_dead(forked.pid, known.pid, ours.pid, ended)
for _ in range(3):
    procfs.reap_orphans([known.pid])
forked.join()
print(forked.exitcode, known.wait(), ours.wait())
print("stopped" if procfs.stat(stopped).state == "T" else "")
os.kill(stopped, signal.SIGKILL)
until_dead(stopped)
procfs.reap_orphans([])
print("reaped" if procfs.stat(stopped) is procfs.stat(ended) is None else "")
"""
