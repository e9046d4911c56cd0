"""Of two worker processes one is stopped and declared dead: it returns, continues, and can't write a byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from runs.fleet.procfs import stat
from tests.conftest import CHECKOUT
from tests.system.crash.stack import Stack, kill
from tests.waiting import eventually


class Morgue:
    """Declares workers dead (see declare.py); one process for all cases, because it starts slowly."""

    def __init__(self, stack: Stack) -> None:
        environment = stack.environment(DJANGO_SETTINGS_MODULE="durableagents.settings", PYTHONPATH=str(CHECKOUT))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.crash.declare"],
            env=environment,
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def declare(self, incarnation: str) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{incarnation}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def morgue(installation: Stack) -> Iterator[Morgue]:
    morgue = Morgue(installation)
    yield morgue
    morgue.close()


class Zombie:
    """The worker stopped at a crash point; its supervisor is stopped too, or it would kill it."""

    def __init__(self, stack: Stack, run_id: str) -> None:
        self._stack, self.run_id = stack, run_id
        claim = [event for event in stack.api.events(run_id) if event["kind"] == "RunClaimed"][-1]["data"]
        self.pid, self.incarnation, self.epoch = int(claim["pid"]), str(claim["worker"]), int(claim["epoch"])
        eventually(lambda: (found := stat(self.pid)) and found.state == "T", "the worker being stopped")

    def refusals(self) -> list[str]:
        lines = self._stack.logged("supervisor").splitlines()
        return [
            line for line in lines if f" {self.pid} " in line and f"run {self.run_id}: refused: stale lease" in line
        ]

    def comes_back(self) -> None:
        kill(self.pid, signal.SIGCONT)
        eventually(self.refusals, "a refusal in the log of the worker that came back")


@pytest.fixture
def undead(stack: Stack) -> Iterator[list[int]]:
    """Stop the supervisor for a test; the pids added are killed before it continues."""
    # After a long stop in the last test it may be registering again.
    [supervisor] = eventually(lambda: stack.pids("supervisor"), "the supervisor")
    os.kill(supervisor, signal.SIGSTOP)
    pids: list[int] = []
    yield pids
    for pid in pids:
        kill(pid)
        eventually(lambda pid=pid: (found := stat(pid)) is None or found.is_dead, "the killed worker's end")  # type: ignore[misc]
    os.kill(supervisor, signal.SIGCONT)


# Without CP0: a worker that returns there has nothing to write, so there is no refusal to wait for.
LATE = ("ToolReconciled", "ToolAnsweredLate")
POINTS = ["CP1@{}", "CP2@{}", "CP3@{}", "CP4@{}", "CP6@{}", "CP7", "CP8"]


@pytest.mark.parametrize("kind", ["keyed", "unsafe"])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point[:3])
def test_a_worker_that_comes_back_after_its_run_was_taken_over_writes_nothing(
    stack: Stack, morgue: Morgue, undead: list[int], point: str, kind: str
) -> None:
    steps = (kind, "gated")
    stack.arm(f"{point.format(kind)}:stop:1")
    run_id = stack.run(*steps)
    eventually(lambda: stack.acted(), "the crash point")
    zombie = Zombie(stack, run_id)
    undead.append(zombie.pid)

    # Not always by this call: another watchdog may find its recorded end and be the first to free its run.
    morgue.declare(zombie.incarnation)
    is_in_doubt = kind == "unsafe" and point[:3] in ("CP2", "CP3", "CP4")
    stack.waits(run_id, "reconcile" if is_in_doubt else "approval")
    before = stack.api.events(run_id)
    assert [e["data"]["worker"] for e in before if e["kind"] == "WorkerLost"] == [zombie.incarnation]
    sent = len(stack.api.effects(run_id))
    zombie.comes_back()

    # At its write or, where its connection was cut, when it claimed its run again.
    logged = stack.logged("postgres")
    assert (
        f"run {run_id} is at epoch" in logged
        or f"run {run_id} is no longer driven by worker {zombie.incarnation}" in logged
    )
    # It may not write, but it may report: its answer settles what a person was asked, or is recorded without effect. It
    # has none if it saw before sending that it is no longer a worker.
    has_sent = point[:3] in ("CP3", "CP4") or (point[:3] == "CP2" and len(stack.api.effects(run_id)) > sent)
    expected = ["ToolReconciled" if is_in_doubt else "ToolAnsweredLate"] if has_sent else []
    news = eventually(
        lambda: [e for e in stack.api.events(run_id)[len(before) :] if e["kind"] in LATE] if expected else [None],
        "its news",
        90,
    )
    assert [e["data"]["by"] for e in news if e] == [f"worker:{zombie.incarnation}"] * len(expected)
    assert [e["kind"] for e in news if e] == expected
    unknown = ["did_not"] if is_in_doubt and not has_sent else []
    assert stack.play(run_id) == unknown, "nobody else need say what became of what it told"
    assert stack.judged(run_id, *steps, has_zombie=True) == []
    assert not [event for event in stack.api.events(run_id)[len(before) :] if event["epoch"] == zombie.epoch]


def test_a_call_is_not_sent_again_while_its_first_sender_may_still_be_sending(stack: Stack) -> None:
    stack.api.faults(system="email", latency_ms=2500)
    try:
        run_id = stack.run("unsafe_slow")
        stack.waits(run_id, "reconcile")
        answer = stack.api.reconcile(run_id, "did_not")
        assert answer.status_code == 409
        assert "still alive" in answer.text
        eventually(lambda: any(row["executed"] for row in stack.api.effects(run_id)), "the mail's arrival")
    finally:
        stack.api.faults(system="email")
    assert stack.play(run_id) == ["happened"]
    assert stack.judged(run_id, "unsafe_slow") == []


BUSY = ("keyed", "unsafe", "hop", "think", "values", "later", "sleep", "hooked", "unsafe")


def test_connections_cut_at_any_moment_cost_nothing(stack: Stack) -> None:
    """Every connection of every worker is cut repeatedly while thirty runs are under way."""
    enough = threading.Event()
    cuts: list[int] = []
    thread = threading.Thread(target=_cut_connections, args=(stack, enough, cuts), daemon=True)
    run_ids = [stack.run(*BUSY) for _ in range(30)]
    thread.start()
    try:
        eventually(lambda: len(cuts) >= 40, "forty rounds of cutting", seconds=60)
    finally:
        enough.set()
        thread.join()
    assert _ended_well(stack, run_ids)
    assert sum(cuts) > 40


def _cut_connections(stack: Stack, enough: threading.Event, cuts: list[int]) -> None:
    query = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'durableagents worker%'"
    )
    with stack.database() as connection:
        while not enough.wait(0.05):
            row: Any = connection.execute(query).fetchone()
            cuts.append(int(row[0]))


def _ended_well(stack: Stack, run_ids: list[str]) -> bool:
    verdicts = stack.play(*run_ids, seconds=60)
    assert [finding for run_id in run_ids for finding in stack.judged(run_id, *BUSY)] == []
    assert verdicts == [], "nobody died, so nothing may be in doubt"
    return True
