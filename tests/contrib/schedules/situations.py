"""A planned run, for tests/integration/approvals/test_payloads.py."""

from __future__ import annotations

from durableagents.contrib.schedules import services
from durableagents.contrib.schedules.services import ScheduleBody
from ledger.actors import Actor


def plan_run(agent: str, text: str, *, by: Actor) -> None:
    given = {"name": "n", "agent": agent, "cron": "@daily", "input": {"text": text}, "zone": "UTC"}
    services.create(ScheduleBody(**given), by=by)
