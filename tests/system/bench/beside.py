"""Further figures: first starts after a restart, many timers at once, statements per run, an idle fleet."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Group, User
from django.db import connection

from durableagents.identity.auth import issue_key
from runs.models import Run, Wait
from tests.system.bench.crew import Crew, Ears, crew, web
from tests.system.bench.figures import Figure, latency
from tests.system.bench.work import start
from tests.waiting import eventually

_DONE = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
# An idle connection reports its counts after ten seconds; tiny measurements skip this wait.
_settled_seconds = 12.0


def after_restart(folder: Path, ears: Ears, restarts: int, times: int) -> Figure:
    """Measure W3 over HTTP with a new web process and new workers."""
    token, found = _key(), []
    for _ in range(restarts):
        with crew(folder, ears, workers=2, slots=50), web(folder) as port:
            for _ in range(times):
                began = time.monotonic()
                run_id = _post(port, token)
                found.append(ears.wait(lambda told, run=run_id: told.run_id == run).at - began)  # type: ignore[misc]
    return latency("POST start → first step begins, first starts after a restart", found, goal="p50 ≤ 6, p99 ≤ 30")


def timers(ears: Ears, count: int) -> Figure:
    """Measure from the moment when all are due to the last one's next step."""
    ids = {str(each) for each in start("bench-alarm", count, at=(datetime.now(UTC) + timedelta(days=1)).isoformat())}
    eventually(
        lambda: Run.objects.filter(id__in=ids, state="waiting_event", owner=None).count() == len(ids), "all asleep"
    )
    at = datetime.now(UTC) + timedelta(seconds=5)  # all have checked by then
    Wait.objects.filter(run_id__in=ids, resolved_at=None).update(deadline=at)
    time.sleep((at - datetime.now(UTC)).total_seconds())
    began, done = time.monotonic(), _count()
    last = ears.wait(lambda told: told.run_id in ids, count=count)
    eventually(lambda: not Run.objects.filter(id__in=ids, ended_at=None).exists(), "the runs' ends")
    question = _count(settled=True) - done
    note = f"the last after {last.at - began:.1f} s; {question / count:.1f} transactions each"
    return Figure(
        "timers due at one moment",
        per_second=round(count / (last.at - began)),
        count=count,
        note=note,
        goal="10,000 in ≤ 10 s",
    )


def statements(count: int) -> Figure:
    """Count the transactions of a run of ten events: start, claim, steps, wake-ups."""
    idle = _a_minute(10.0) / 60
    began, done = time.monotonic(), _count(settled=True)
    for _ in range(count):
        (run_id,) = start("bench-mark", 1, steps=1)
        eventually(lambda run=run_id: not Run.objects.filter(pk=run, ended_at=None).exists(), "the run's end")  # type: ignore[misc]
    question = _count(settled=True) - done - idle * (time.monotonic() - began)
    return Figure("transactions a run", count=count, note=f"{question / count:.1f} with the bench's own looks")


def at_rest(crew: Crew, seconds: float) -> list[Figure]:
    eventually(lambda: not Run.objects.filter(owner__isnull=False).exists(), "the runs' ends")
    return [
        Figure("transactions a minute at rest", count=round(_a_minute(seconds)), goal="≤ 600"),
        Figure("memory at rest: supervisor, two workers, all that belongs to them", bytes=crew.memory()),
    ]


def _a_minute(seconds: float) -> float:
    began, done = time.monotonic(), _count(settled=True)
    time.sleep(seconds)
    return (_count() - done) / (time.monotonic() - began) * 60


def _count(*, settled: bool = False) -> int:
    if settled:
        time.sleep(_settled_seconds)
    with connection.cursor() as cursor:
        cursor.execute(_DONE)
        return int(cursor.fetchone()[0])


def _key() -> str:
    user, _ = User.objects.get_or_create(username="bench-integrator")
    user.groups.set([Group.objects.get_or_create(name="integrator")[0]])
    return issue_key(user, "bench")


def _post(port: int, token: str) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/runs",
        json.dumps({"agent": "bench-mark", "input": {"steps": 1}}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Idempotency-Key": str(uuid4())},
    )
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["id"])


def parts(ears: Ears, found: Crew, size: Callable[..., int]) -> list[Any]:
    global _settled_seconds
    _settled_seconds = size(12, 1)
    return [*at_rest(found, size(60, 2)), statements(size(100, 5)), timers(ears, size(10_000, 20))]
