"""Measurements across processes: W3, W4, W5, many slow model calls, events on a socket."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from websockets.sync.client import connect

from approvals import services as approvals
from approvals.models import Approval
from ledger.actors import Actor
from ledger.models import Event, LedgerEntry
from ledger.redacted import masked_key
from runs.models import Run
from tests.system.bench.crew import Crew, Ears, Told
from tests.system.bench.figures import Figure, latency
from tests.system.bench.work import start
from tests.waiting import eventually

FIONA = Actor("user", "fiona", role="approver_finance", auth="session")


def starts(ears: Ears, times: int) -> Figure:
    """W3: measure from the service call to the first step's begin in a worker."""
    found = []
    for _ in range(times):
        began = time.monotonic()
        (run_id,) = start("bench-mark", 1, steps=1)
        found.append(ears.wait(lambda told, run=str(run_id): told.run_id == run).at - began)  # type: ignore[misc]
        time.sleep(random.uniform(0.005, 0.03))
    return latency("W3 start call → first step begins", found, goal="p50 ≤ 8, p99 ≤ 40")


def decisions(ears: Ears, times: int) -> Figure:
    """W4: measure from a decision's commit to the next step's begin in a worker."""
    found = []
    for _ in range(times):
        (run_id,) = start("bench-gate", 1, steps=1)
        eventually(lambda run=run_id: _is_parked(run), "the run waiting for a person")  # type: ignore[misc]
        committed = _decide(run_id)
        found.append(ears.wait(lambda told, run=str(run_id): told.run_id == run).at - committed)  # type: ignore[misc]
        time.sleep(random.uniform(0.005, 0.03))
    return latency("W4 decision committed → next step begins", found, goal="p50 ≤ 5, p99 ≤ 15")


def _is_parked(run_id: UUID) -> bool:
    return Run.objects.filter(pk=run_id, state="waiting_human", owner=None).exists()


def _decide(run_id: UUID) -> float:
    approval = Approval.objects.get(run_id=run_id)
    moment: list[float] = []
    with transaction.atomic():
        transaction.on_commit(
            lambda: moment.append(time.monotonic())
        )  # before the wake-ups, which are sent after the commit
        approvals.decide(approval.id, verdict="approve", plan_hash=approval.plan_hash, justification="Go on.", by=FIONA)
    return moment[0]


def kills(ears: Ears, crew: Crew, times: int) -> list[Figure]:
    """W5: measure from SIGKILL of a run's worker to its next step on another one, and count effects."""
    found, run_ids = [], []
    for _ in range(times):
        crew.complete()
        (run_id,) = start("bench-effects", 1, steps=12)
        run_ids.append(run_id)
        ours = str(run_id)
        victim = ears.wait(lambda told, run=ours: told.run_id == run, count=3).pid  # type: ignore[misc]
        time.sleep(random.uniform(0.0, 0.03))
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        after: Told = ears.wait(lambda told, run=ours, pid=victim: told.run_id == run and told.pid != pid)  # type: ignore[misc]
        found.append(after.at - killed)
        eventually(lambda run=run_id: Run.objects.get(pk=run).ended_at is not None, "the run's end")  # type: ignore[misc]
    return [
        latency("W5 kill −9 of the worker → next step begins", found, goal="p50 ≤ 500, p99 ≤ 2,000"),
        _effects(ears, run_ids),
    ]


def _effects(ears: Ears, run_ids: list[UUID]) -> Figure:
    """Count the requests by key, of which the ledger has the beginning; a second key for one call would be a second
    effect."""
    ours = {str(run_id) for run_id in run_ids}
    requests = [masked_key(entry.key) for entry in ears.heard if entry.run_id in ours and entry.what == "effect"]
    calls = LedgerEntry.objects.filter(run_id__in=run_ids, fact="committed")
    done = set(calls.values_list("key", flat=True))
    twice = len(set(requests) - done) + (calls.count() - len(done))
    note = (
        f"{len(set(requests))} effects for {calls.count()} calls, "
        f"{len(requests) - len(set(requests))} repeated under the same key, {twice} duplicate"
    )
    return Figure("W5 effects at the other side", count=len(requests), note=note, goal="0 duplicate")


def model_calls(crew: Crew, count: int) -> Figure:
    """Make `count` runs with a model call of 2 s ready at once; measure from the first claim to the last end."""
    with transaction.atomic():
        run_ids = start("bench-model", count, steps=1)
    peak = 0
    left = count
    while left:
        peak = max(peak, crew.memory())
        time.sleep(0.2)
        left = Run.objects.filter(id__in=run_ids, ended_at=None).count()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM max(ended_at) - min(started_at)) FROM runs_run WHERE id = ANY(%s)", [run_ids]
        )
        (seconds,) = cursor.fetchone()
    note = f"{seconds:.1f} s, {peak / 2**20:.0f} MiB in {crew.workers} workers and all that belongs to them"
    return Figure(
        f"{count:,} runs × one model call of 2 s", count=count, bytes=peak, note=note, goal="≤ 10 s, ≤ 1,536 MiB"
    )


# --- the socket -----------------------------------------------------------------------------------


def sockets(port: int, runs: int, steps: int) -> Figure:
    """Measure from an event's time in the journal to its arrival on a socket, with `runs` runs at work."""
    heard: list[tuple[float, str, int]] = []
    with connect(
        f"ws://127.0.0.1:{port}/ws/live", origin=f"http://127.0.0.1:{port}", additional_headers={"Cookie": _cookie()}
    ) as link:  # type: ignore[arg-type]
        thread = threading.Thread(target=_hear, args=(link, heard), daemon=True)
        thread.start()
        eventually(lambda: bool(heard), "the socket's first word")
        run_ids = start("bench-pure", runs, steps=steps, pause_seconds=0.1)
        eventually(lambda: not Run.objects.filter(id__in=run_ids, ended_at=None).exists(), "the runs' ends")
        time.sleep(0.5)
    by_run: dict[str, list[tuple[float, int]]] = {}
    for at, run_id, seq in list(heard):
        by_run.setdefault(run_id, []).append((at, seq))
    found = []
    for run_id, seq, at in Event.objects.filter(run_id__in=run_ids, seq__gt=2).values_list("run_id", "seq", "at"):
        found.append(next(t for t, result in by_run[str(run_id)] if result >= seq) - at.timestamp())
    return latency("event committed → on the socket", found, goal="p95 ≤ 300")


def _hear(link: Any, heard: list[tuple[float, str, int]]) -> None:
    for text in link:
        data = json.loads(text)
        heard.append((time.time(), str(data["run"]), data["seq"]))


def _cookie() -> str:
    from django.conf import settings
    from django.contrib.auth.models import Group, User
    from django.test import Client

    user, _ = User.objects.get_or_create(username="bench-auditor")
    user.groups.set([Group.objects.get_or_create(name="auditor")[0]])
    client = Client()
    client.force_login(user)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
