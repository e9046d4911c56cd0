"""A read-only database (after a failover or on a full disk): reads work, writes are 503, then it reconnects."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from durableagents.identity.auth import issue_key
from durableagents.models import ApiKey
from ledger.web.roles import ROLES
from tests.integration.api import everything
from tests.integration.api.conftest import Api, is_problem, person
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools
from tests.integration.runs.stage import Stage
from tests.tiers import sample
from tests.world import Toolbox

__all__ = ["_agents_of_this_test", "_django_db_marker", "outside", "stage", "tools"]
pytestmark = pytest.mark.django_db
# Read, but each time on record.
RECORDED = {"api-run-evidence"}


@contextmanager
def read_only_session() -> Iterator[None]:
    _execute("SET default_transaction_read_only = on")
    try:
        yield
    finally:
        connection.close()


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _statuses(paths: list[tuple[str, str]], client: Client, headers: dict[str, str]) -> dict[str, int]:
    return {
        path: client.get(path, headers=headers if name.startswith("api-") else {}).status_code for name, path in paths
    }


def test_read_works_without_its_bookkeeping(stage: Stage, tools: Toolbox) -> None:
    runs = everything.live(stage, tools)
    user, client = person("all", *ROLES, is_superuser=True, is_staff=True), Client(raise_request_exception=False)
    client.force_login(user)
    headers = {"Authorization": f"Bearer {issue_key(user, 'test')}"}
    addresses = {name: path for name, _, path in everything.addresses(runs[4:5], lambda name: name not in RECORDED)}
    paths = sample(addresses.items(), 7)
    usual = _statuses(paths, client, headers)
    # Both are noted once a minute; after this each request below tries to.
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(hours=1))
    session: Any = client.session
    session["seen_at"] = (timezone.now() - timedelta(minutes=5)).isoformat()
    session.save()
    with read_only_session():
        assert _statuses(paths, client, headers) == usual
    assert ApiKey.objects.get().last_used_at < timezone.now() - timedelta(minutes=50)


def test_write_is_a_503_and_the_next_one_has_a_new_connection(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    integrator = Api(issue_key(person("shop", "integrator"), "test"))
    start = {"agent": "order@1.0.0", "input": {"item": "chair", "amount": 2}}
    user, browser = person("olga", "operator"), Client(raise_request_exception=False)
    browser.force_login(user)
    form, run = {"justification": "Hold on, please."}, integrator.post("runs", start).json()["id"]
    for _ in range(2):
        with read_only_session():
            answer = integrator.post("runs", start)
            assert is_problem(answer, 503, "database-read-only") and answer["Retry-After"]
            assert integrator.post("runs", start).status_code == 201
    with read_only_session():
        page = browser.post(f"/runs/{run}/pauses", form)
        assert (
            page.status_code == 503 and page["Retry-After"] and "Hold on, please.</textarea>" in page.content.decode()
        )
        assert browser.post(f"/runs/{run}/pauses", form).status_code == 302
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


@pytest.mark.parametrize("fault", ["default_transaction_read_only = on", "temp_file_limit = '64kB'"])
def test_readyz_tells_that_the_database_takes_no_writes(stage: Stage, fault: str) -> None:
    """A full disk, simulated by the file size limit, has no room for what the check writes."""
    name, setting = connection.settings_dict["NAME"], fault.partition(" ")[0]
    assert Client().get("/readyz").json()["checks"]["writes"] == {"ok": True, "age_seconds": 0.0}
    _execute(f'ALTER DATABASE "{name}" SET {fault}')
    try:
        answer = Client().get("/readyz")
        checks = answer.json()["checks"]
        assert answer.status_code == 503 and checks["database"]["ok"] and not checks["writes"]["ok"]
        assert checks["writes"]["age_seconds"] >= 0
    finally:
        _execute(f'ALTER DATABASE "{name}" RESET {setting}')
