"""Versions changed past the application."""

from __future__ import annotations

import pytest

from durableagents.contrib.releases import services
from ledger.actors import Actor
from runs.models import Run
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem, order_agent  # noqa: F401 (fixtures)
from tests.integration.api.test_roads import intruder, named
from tests.integration.approvals.setup import WHY
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db


@each_case(
    ("version", "change"),
    [
        ("1.0.0", "UPDATE runs_versiongate SET is_closed = false"),
        (
            "1.1.0",
            "INSERT INTO runs_versiongate (agent, version, is_closed, set_by, set_at, why)"
            " VALUES ('order', '1.0.0', true, 'user:olga', now(), 'x')",
        ),
    ],
)
def test_version_that_sql_opens_or_closes_starts_nothing(integrator: Api, version: str, change: str) -> None:
    by = Actor("user", "olga", role="operator", auth="session", person=1)
    services.close_version("order", version, by=by, justification=WHY)
    with intruder() as cursor:
        cursor.execute(change)
    assert is_problem(integrator.post("runs", START), 403, "changed-outside") and not Run.objects.exists()
    assert "version '1.0.0'" in named()
