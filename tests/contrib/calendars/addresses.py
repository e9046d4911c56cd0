"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from durableagents.contrib.calendars.models import Calendar
from ledger.actors import Actor
from tests.contrib.calendars.timing import calendar, timing
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.roles import ADMINS, EVERY, SUPERUSER

API = [
    ("GET", EVERY | {SUPERUSER}, "api-queue-timing api-calendars api-calendar"),
    ("POST", ADMINS, "api-queue-timing api-calendars api-calendar-remove"),
    ("POST", EVERY | {SUPERUSER}, "api-deputies api-deputy-revoke api-absences api-absence-end"),
]
READ = [
    (EVERY, "calendars calendar"),
]
ACT = [
    (EVERY, "deputies deputy_revocations absences absence_endings"),
    (set(), "queue_timings new_calendar calendar_changes calendar_removals"),
]


def timed() -> None:
    if not Calendar.objects.exists():
        root = Actor("os", "root", auth="shell")
        calendar(root)
        timing(root, "legal", calendar="DE", on_timeout="remind", every_hours=1)


def sample_calendar() -> list[str]:
    timed()
    return ["DE"]


prepare_queue = timed
SAMPLES = {"calendar": sample_calendar}
