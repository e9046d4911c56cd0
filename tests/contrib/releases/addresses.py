"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from django.utils import timezone

from durableagents.contrib.releases.models import Ramp
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.roles import EVERY, OPERATE

API = [
    ("GET", EVERY, "api-versions api-ramps api-ramp"),
    (
        "POST",
        OPERATE,
        """
        api-version-close api-migrations api-version-open api-ramps api-ramp-raise api-ramp-resume
        api-ramp-rollback api-ramp-finish
        """,
    ),
    ("POST", OPERATE | {"auditor"}, "api-migrations-look"),
]
READ = [
    (EVERY, "versions migrations"),
]
ACT = [
    (
        {"operator"},
        """
        migration_looks migrating version_closings version_openings new_ramp ramp_shares ramp_resumptions
        ramp_rollbacks ramp_completions
        """,
    ),
]


def ramp() -> Ramp:
    now = timezone.now()
    given = {
        "agent": "buyer",
        "share": 1000,
        "bounds": {"failed": 5},
        "least": 20,
        "made_at": now,
        "set_by": "user:olga",
    }
    for _ in range(5):
        Ramp.objects.create(from_version="0.9.0", to_version="1.0.0", state="done", ended_at=now, **given)
    return Ramp.objects.create(from_version="0.9.0", to_version="1.0.0", **given)


SAMPLES = {"ramp_id": lambda: [ramp().pk]}
