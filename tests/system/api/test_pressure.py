"""Without a free database connection runs wait, none fails, and the API answers 503 with Retry-After."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest

from ledger.models import Event
from runs.models import Process, Run
from runs.services import lifecycle
from tests.conftest import CHECKOUT, database_urls
from tests.integration.runs import clockwork
from tests.system.api.web import serving
from tests.waiting import eventually
from tests.world import SHOP

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def admin(postgres: Any, transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_urls(postgres)["admin"], autocommit=True) as link:
        yield link


@pytest.fixture
def web(process_env: dict[str, str]) -> Iterator[httpx.Client]:
    with serving(process_env, exit_code=0) as running:
        yield running.client


@pytest.fixture
def worker(process_env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    env = process_env | {
        "DURABLEAGENTS_AGENTS": clockwork.__name__,
        "DURABLEAGENTS_DATA": os.environ["DURABLEAGENTS_TEST_DATA"],
    }
    command = [sys.executable, "-m", "tests.integration.runs.skewed", "0"]
    process = subprocess.Popen(command, env=env, cwd=CHECKOUT, stdin=subprocess.PIPE)
    try:
        eventually(lambda: Process.objects.filter(pid=process.pid).exists(), what="the worker", seconds=60)
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0


def _status(client: httpx.Client, path: str, **more: Any) -> int | None:
    try:
        return client.get(path, **more).status_code
    except httpx.TransportError:
        return None


@contextmanager
def full(admin: psycopg.Connection[Any]) -> Iterator[None]:
    """Let the database have no free connection, as at max_connections, and drop the open ones."""
    (name,) = admin.execute("SELECT current_database()").fetchone() or ("",)
    admin.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 0')
    try:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = 'durableagents'",
            [name],
        )
        yield
    finally:
        admin.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT -1')


def test_with_no_connection_to_be_had_runs_wait_and_the_api_says_when_to_come_back(
    admin: psycopg.Connection[Any], web: httpx.Client, worker: subprocess.Popen[bytes], operator: Any
) -> None:
    runs = [lifecycle.start(clockwork.agent.graph_id, {"sleep_seconds": 0.5 * i}, by=SHOP) for i in range(6)]
    assert web.get("/api/v1/runs", headers=operator.headers).status_code == 200
    for _ in range(2):
        with full(admin):
            runs += [lifecycle.start(clockwork.agent.graph_id, {}, by=SHOP) for _ in range(3)]
            refused = web.get("/api/v1/runs", headers=operator.headers)
            assert refused.status_code == 503 and refused.json()["code"] == "database-unavailable"
            assert (
                refused.headers["Content-Type"] == "application/problem+json"
                and int(refused.headers["Retry-After"]) > 0
            )
            posted = web.post("/api/v1/runs", headers=operator.headers, json={"agent": "clockwork", "input": {}})
            assert posted.status_code == 503
        eventually(lambda: _status(web, "/api/v1/runs", headers=operator.headers) == 200, what="the API being back")
    eventually(
        lambda: set(Run.objects.values_list("state", flat=True)) == {"completed"},
        what="the end of every run",
        seconds=60,
    )
    assert Run.objects.count() == len(runs) and worker.poll() is None
    assert not Event.objects.filter(kind__in=["RunFailed", "WorkerLost"]).exists(), "nobody lost a run over it"


def test_a_pool_that_is_used_up_is_503_and_no_5xx_besides(
    admin: psycopg.Connection[Any], web: httpx.Client, operator: Any
) -> None:
    with admin.transaction(), ThreadPoolExecutor(40) as crowd:
        admin.execute("LOCK TABLE runs_run IN ACCESS EXCLUSIVE MODE")
        answers = list(crowd.map(lambda _: web.get("/api/v1/runs", headers=operator.headers), range(40)))
    assert Counter(answer.status_code for answer in answers) == {503: 40}
    assert all(answer.headers["Retry-After"] and answer.json()["code"] == "busy" for answer in answers), (
        "it answers, and it is busy"
    )
    assert {answer.json()["title"] for answer in answers} == {"Busy"}
    assert web.get("/api/v1/runs", headers=operator.headers).status_code == 200
