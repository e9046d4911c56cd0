"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from durableagents.contrib.schedules.models import Firing, Schedule
from runs.models import Run
from tests.integration.api.conftest import Api
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.roles import EVERY, START

API = [
    ("GET", EVERY, "api-schedules api-schedule"),
    ("POST", START, "api-schedules api-schedule api-schedule-pause api-schedule-resume api-schedule-delete"),
]
READ = [
    (EVERY, "schedules"),
]
ACT = [
    (
        {"integrator", "operator"},
        """
        new_schedule schedule_pauses schedule_changes schedule_resumptions schedule_deletions
        """,
    ),
]


def make_theirs(operator: Api, run: Run) -> dict[str, str]:
    nightly = {"name": "theirs", "agent": "order", "cron": "@daily", "input": {"item": "theirs", "amount": 1}}
    return {"<uuid:schedule_id>": operator.post("schedules", nightly).json()["id"]}


def scheduled() -> Schedule:
    now = timezone.now()
    given = {
        "agent": "buyer",
        "input": {},
        "cron": "@daily",
        "owner": 1,
        "set_by": "user:olga",
        "created_at": now,
        "updated_at": now,
        "next_at": now,
    }
    several = [Schedule.objects.create(name=f"n{i}", **given) for i in range(20)]
    for one in several:
        for day in range(12):
            planned = now - timedelta(days=day)
            Firing.objects.create(schedule=one, planned_at=planned, at=planned, outcome="missed")
    return several[0]


SAMPLES = {"schedule_id": lambda: [scheduled().id]}


def give_all(cursor: Any, person: int) -> None:
    cursor.execute("UPDATE runs_schedule SET owner = %s", [person])
