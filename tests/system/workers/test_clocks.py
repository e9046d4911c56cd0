"""A worker's clock that is a day off changes nothing: time is the database's."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from ledger import events as e
from runs.models import Process, Run
from runs.services import lifecycle
from tests.integration.runs import clockwork
from tests.integration.runs.stage import Stage, events, fresh, kinds, now, waiting
from tests.system.workers.conftest import Start
from tests.waiting import eventually
from tests.world import SHOP

pytestmark = pytest.mark.django_db


def begun(**plan: Any) -> Run:
    return lifecycle.start(clockwork.agent.graph_id, plan, by=SHOP)


@pytest.mark.parametrize("off", [86_400, -86_400])
def test_a_worker_whose_clock_is_a_day_off_lets_nothing_expire_early_or_late(
    stage: Stage, worker: Start, off: int
) -> None:
    later, question, due = begun(sleep_seconds=7200), begun(is_gated=True), begun(sleep_seconds=1)
    worker(off)
    eventually(lambda: str(fresh(due).state) == "completed", what="what is due", seconds=60)
    eventually(lambda: len(waiting(later)) == len(waiting(question)) == 1, what="what isn't")
    (sleeping,), (gate,) = waiting(later), waiting(question)
    assert timedelta(hours=1, minutes=50) < sleeping.deadline - now() < timedelta(hours=2), (
        "set by the database's clock"
    )
    assert timedelta(days=6) < gate.deadline - now() < timedelta(days=7)
    began = datetime.fromisoformat(events(due, e.RunCompleted)[0].payload["text"])
    assert abs(began - now()) < timedelta(minutes=10), "what a node takes for the time is the database's too"
    stage.decide(question)
    eventually(
        lambda: str(fresh(question).state) == "completed", what="the decision being acted on: its grant hasn't expired"
    )


@pytest.mark.parametrize("off", [86_400, -86_400])
def test_a_worker_whose_clock_is_a_day_off_takes_no_run_from_another(stage: Stage, worker: Start, off: int) -> None:
    held = begun()
    (claimed,) = stage.claim()
    process = worker(off)
    others = [begun() for _ in range(3)]
    eventually(
        lambda: {str(fresh(run).state) for run in others} == {"completed"},
        what="the other worker's own runs",
        seconds=60,
    )
    assert Process.objects.get(pid=process.pid).ended_at is None
    assert Process.objects.get(pk=stage.worker.id).ended_at is None, "who is alive isn't declared dead"
    assert fresh(held).owner == stage.worker.id and "WorkerLost" not in kinds(held)
    assert stage.drive_claimed(claimed) == "parked"
