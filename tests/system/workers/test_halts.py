"""Halts and worker processes: one stopped during a halt, one killed, connections lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from django.db import connection

from ledger.models import Event
from runs.engine.halts import FRESH_SECONDS
from runs.models import Process, Run
from runs.services import lifecycle
from tests.contrib.halts.halting import halt, lift
from tests.contrib.halts.test_workers import of
from tests.integration.runs.stage import Stage, fresh, problems
from tests.system.workers.conftest import Start
from tests.waiting import eventually
from tests.world import SHOP

pytestmark = pytest.mark.django_db


def _start(path: Path, seconds: float = 0.05) -> Run:
    return lifecycle.start("limited@1.0.0", {"path": str(path), "seconds": seconds}, by=SHOP)


def test_a_worker_that_was_stopped_over_a_halt_sends_nothing_when_it_wakes(
    stage: Stage, worker: Start, tmp_path: Path
) -> None:
    """Between its intent and its call: it asks before it sends, and its clock is a day off."""
    armed = {"DURABLEAGENTS_FAILPOINTS": "CP2:stop:1", "DURABLEAGENTS_FAILPOINT_DIR": str(tmp_path)}
    process, path = worker(-86_400, **armed), tmp_path / "told"
    run = _start(path)
    eventually(lambda: _is_stopped(process.pid), what="the worker to stop at CP2")
    stopped_at = time.monotonic()
    assert "ToolInvoked" in _kinds(run)
    it = halt("tool", "file_it")
    eventually(lambda: of(it).unconfirmed[0].says == "silent", what="its silence to be seen")
    # A call may leave unasked for this long after its intent; a late heartbeat looks silent at once.
    time.sleep(max(0.0, stopped_at + FRESH_SECONDS + 0.5 - time.monotonic()))
    os.kill(process.pid, signal.SIGCONT)
    eventually(lambda: of(it).state == "confirmed" and fresh(run).owner is None)
    assert not path.exists(), "nothing left"
    lift(it)
    eventually(lambda: fresh(run).ended_at is not None)
    assert path.read_text().count("+") == 1 and str(fresh(run).state) == "completed" and problems(run) == []


def test_a_worker_is_killed_while_it_confirms_and_another_takes_over(
    stage: Stage, worker: Start, tmp_path: Path
) -> None:
    Process.objects.all().update(ended_at="2026-01-01T00:00Z")
    first, path = worker(), tmp_path / "told"
    run = _start(path, seconds=4.5)
    eventually(lambda: path.exists())
    it = halt("all")
    eventually(lambda: of(it).in_flight)
    first.kill()
    worker()
    eventually(lambda: fresh(run).owner is None and of(it).state == "confirmed")
    assert str(fresh(run).state) == "running" and path.read_text().count("+") == 1
    lift(it)
    eventually(lambda: fresh(run).ended_at is not None)
    keys = {line.split()[3] for line in path.read_text().splitlines()}
    assert str(fresh(run).state) == "completed" and len(keys) == 1 and problems(run) == []


def test_connections_that_are_lost_over_a_halt_and_its_lift_lose_neither(
    stage: Stage, worker: Start, tmp_path: Path
) -> None:
    worker()
    path = tmp_path / "told"
    runs = [_start(path) for _ in range(8)]
    it = halt("all")
    _cut_all()
    eventually(lambda: all(fresh(run).owner is None for run in runs))
    before = Event.objects.filter(kind="ToolInvoked").count()
    _cut_all()
    assert Event.objects.filter(kind="ToolInvoked").count() == before
    lift(it)
    _cut_all()
    eventually(lambda: all(fresh(run).ended_at is not None for run in runs))
    assert all(str(fresh(run).state) == "completed" and problems(run) == [] for run in runs)


def _kinds(run: Run) -> list[str]:
    return list(Event.objects.filter(run_id=run.pk).values_list("kind", flat=True))


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _cut_all() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database() AND application_name LIKE 'durableagents %%'",
            [],
        )
