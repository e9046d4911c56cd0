"""Limits that several worker processes share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from durableagents.contrib.limits.models import Limit, Permit
from ledger import events as e
from runs.models import Process, Run
from runs.services import lifecycle
from runs.workers import failover
from tests.contrib.limits import limited
from tests.contrib.limits.test_limits import is_over, ring_now, said
from tests.integration.runs.stage import Stage, events, fresh, problems
from tests.system.workers.conftest import Start
from tests.waiting import eventually
from tests.world import SHOP

pytestmark = pytest.mark.django_db


def told(path: Path) -> list[tuple[str, float, int, str]]:
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(what, float(at), int(pid), key) for what, at, pid, key in lines]


def most_at_once(path: Path) -> int:
    running = most = 0
    for what, *_ in sorted(told(path), key=lambda one: (one[1], one[0] == "+")):
        running += 1 if what == "+" else -1
        most = max(most, running)
    return most


def test_two_processes_a_day_apart_share_what_a_tool_says_of_itself(
    worker: Start, stage: Stage, tmp_path: Path
) -> None:
    """At once never more than the limit, and never more than rate and burst, by neither's own clock."""
    path = tmp_path / "told"
    said("tool:file_it", per_minute=1200, burst=4, at_once=3)
    pids = {worker(86_400).pid, worker(-86_400).pid}
    # Otherwise the first one has done everything before the other starts.
    eventually(lambda: Process.objects.filter(pid__in=pids).count() == 2, seconds=60)
    runs = [lifecycle.start(limited.agent.graph_id, {"path": str(path)}, by=SHOP) for _ in range(60)]
    eventually(is_over(*runs), seconds=60)
    begun = sorted(at for what, at, *_ in told(path) if what == "+")
    assert len(begun) == 60 and most_at_once(path) <= 3
    assert len({pid for *_, pid, _ in told(path)}) == 2, "both had a part in it"
    for i, first in enumerate(begun):
        for n, last in enumerate(begun[i:], 1):
            assert n <= 4 + 20 * (last - first) + 2, f"{n} in {last - first:.3f} s"
    eventually(lambda: not Permit.objects.exists())
    assert all(problems(run) == [] for run in runs)


def test_a_worker_that_is_killed_gives_back_what_it_held(worker: Start, stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "told"
    said("tool:file_it", at_once=2)
    held = [lifecycle.start(limited.agent.graph_id, {"path": str(path), "seconds": 3.0}, by=SHOP) for _ in range(2)]
    dying = worker()
    eventually(lambda: len(told(path)) == 2, seconds=30)
    assert Permit.objects.count() == 2
    others = [lifecycle.start(limited.agent.graph_id, {"path": str(path)}, by=SHOP) for _ in range(4)]
    (owner,) = set(Permit.objects.values_list("worker", flat=True))
    dying.send_signal(signal.SIGKILL)
    dying.wait(10)
    failover.worker_died(owner, "the test killed it")
    assert Process.objects.get(pk=owner).ended_at is not None
    worker()
    while not is_over(*held, *others)():
        eventually(lambda: is_over(*held, *others)() or Run.objects.filter(state="waiting_event").exists(), seconds=60)
        ring_now()
    assert not Permit.objects.filter(worker=owner).exists()
    assert all(str(fresh(run).state) == "completed" and problems(run) == [] for run in (*held, *others))
    assert len(events(held[0], e.ToolRedispatched)) == 1


def test_a_limit_of_the_tools_own_code_counts_where_nobody_says_otherwise(
    worker: Start, stage: Stage, tmp_path: Path
) -> None:
    path = tmp_path / "told"
    runs = [lifecycle.start(limited.agent.graph_id, {"path": str(path)}, by=SHOP) for _ in range(12)]
    worker(DURABLEAGENTS_LIMITS="tool:file_it at_once=1")
    eventually(is_over(*runs), seconds=60)
    limit = Limit.objects.get(pk="tool:file_it")
    assert limit.of_tool == {"per_minute": 6000, "at_once": 3, "burst": 10} and limit.declared == {"at_once": 1}
    assert most_at_once(path) == 1, "the installation's word stands above it"
