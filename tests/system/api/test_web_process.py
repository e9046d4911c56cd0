"""The real web process: health checks, database outages, shutdown."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import psutil
import pytest
from django.db import connection

from runs.models import Process
from tests.conftest import database_urls, process_env_in
from tests.integration.api.proxy import Wire
from tests.kept import clean
from tests.system.api.web import Web, serving

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def running(env: dict[str, str], folder: Path) -> Iterator[Web]:
    address = urlsplit(env["DATABASE_URL"])
    (host,) = parse_qs(address.query)["host"]
    port = parse_qs(address.query).get("port", ["5432"])[0]
    wire = Wire(folder, f"{host}/.s.PGSQL.{port}")
    wire.mend()
    user = address.netloc.rsplit("@", 1)[0]
    through = f"postgresql://{user}@/{address.path.lstrip('/')}?host={wire.folder}&port=5432"
    with serving(env | {"DATABASE_URL": through, "DATABASE_OWNER_URL": ""}) as web:
        web.wire = wire
        yield web
    if wire._listener is not None:
        wire.cut()


@pytest.fixture(scope="module")
def web(
    postgres: Any, django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    """One web process for all tests that leave it running."""
    with django_db_blocker.unblock():
        env, admin = process_env_in(tmp_path_factory.mktemp("web"), postgres), database_urls(postgres)["admin"]
        connection.close()
    try:
        with running(env, tmp_path_factory.mktemp("w")) as web:
            yield web
    finally:
        clean(admin)


@pytest.fixture
def mortal(process_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(process_env, tmp_path_factory.mktemp("w")) as web:
        yield web


def test_it_lives_in_the_fleet_and_leaves_it(mortal: Web, operator: Any) -> None:
    web = mortal

    def rows() -> list[dict[str, Any]]:
        answer = web.client.get("/api/v1/fleet", headers=operator.headers)
        return [row for row in answer.json()["results"] if row["pid"] == web.process.pid]

    web.until(lambda: [row["kind"] for row in rows()] == ["web"], "it is in the fleet")
    first = rows()[0]["last_heartbeat_at"]
    web.until(lambda: rows()[0]["last_heartbeat_at"] > first, "its heart beats on")
    web.stop()
    assert Process.objects.get(pid=web.process.pid).ended_at is not None


def test_without_workers_it_is_alive_but_not_ready(web: Web) -> None:
    answer = web.client.get("/readyz")
    assert answer.status_code == 503 and answer.json()["status"] == "not ready"
    checks = answer.json()["checks"]
    assert checks["database"] == {"ok": True, "age_seconds": 0.0}
    assert checks["workers"] == {"ok": False, "age_seconds": None}


def test_it_outlasts_the_database(web: Web, operator: Any) -> None:
    def runs() -> httpx.Response:
        return web.client.get("/api/v1/runs", headers=operator.headers)

    assert runs().status_code == 200
    web.wire.cut()
    began = time.monotonic()
    refused = web.client.get("/api/v1/runs", headers=operator.headers)
    assert time.monotonic() - began < 30
    assert refused.status_code == 503 and refused.headers["Content-Type"] == "application/problem+json"
    assert refused.headers["Retry-After"]
    ready = web.client.get("/readyz").json()
    assert ready["checks"]["database"]["ok"] is False
    assert web.client.get("/healthz").status_code == 200
    web.wire.mend()
    began = time.monotonic()
    web.until(lambda: runs().status_code == 200, "it answers again")


def test_a_database_that_stands_still_makes_it_not_ready_and_keeps_nobody_waiting(mortal: Web) -> None:
    """Every probe is answered, and the process can be ended."""
    web, wire = mortal, mortal.wire
    web.until(lambda: web.client.get("/readyz").json()["checks"]["database"]["ok"], "it reaches the database")
    wire.stall()
    threads = psutil.Process(web.process.pid).num_threads()
    for _ in range(4):
        answer = web.client.get("/readyz", timeout=60)
        database = answer.json()["checks"]["database"]
        assert (answer.status_code, database["ok"]) == (503, False) and database["age_seconds"] > 0
    assert psutil.Process(web.process.pid).num_threads() <= threads + 3
    began = time.monotonic()
    with ThreadPoolExecutor(6) as several:
        answers = list(
            several.map(lambda _: httpx.get(f"{web.client.base_url}/readyz", timeout=60).status_code, range(6))
        )
    assert answers == [503] * 6 and time.monotonic() - began < 30, "nobody waits for those before it"
    wire.flow()
    web.until(lambda: web.client.get("/readyz").json()["checks"]["database"]["ok"], "it reaches the database again")
    wire.stall()
    assert web.client.get("/readyz", timeout=60).status_code == 503
    web.process.send_signal(signal.SIGINT)
    web.process.wait(30)
    wire.flow()


def test_nor_does_it_where_many_connections_lay_idle(web: Web, operator: Any) -> None:
    def runs(_: int = 0) -> int:
        return web.client.get("/api/v1/runs", headers=operator.headers, timeout=30).status_code

    with ThreadPoolExecutor(8) as several:
        web.until(
            lambda: set(several.map(runs, range(24))) == {200} and web.wire.connections >= 6,
            "many connections are open",
        )
        web.wire.cut()
        web.wire.mend()
        assert [runs() for _ in range(4)] == [200] * 4
        web.wire.cut()
        web.wire.mend()
        assert set(several.map(runs, range(8))) == {200}


def test_connections_are_shared_and_bounded(web: Web, operator: Any) -> None:
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: web.client.get("/api/v1/runs", headers=operator.headers), range(200)))
    assert {answer.status_code for answer in answers} == {200}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'durableagents'"
        )
        (count,) = cursor.fetchone()
    assert count <= 10 + 3, "the pool, the heartbeat, the live listener"


def test_a_small_body_in_chunks_is_read_and_a_giant_is_answered(web: Web, integrator: Any) -> None:
    answer = web.client.post(
        "/api/v1/runs",
        content=iter([b'{"agent": ', b'"nobody", "input": 1}']),
        headers=integrator.headers | {"Content-Type": "application/json"},
    )
    assert answer.status_code == 422 and answer.json()["code"] == "unknown-agent"

    def giant() -> Iterator[bytes]:
        yield b'{"justification": "'
        for _ in range(5000):
            yield b"x" * 1000
        yield b'"}'

    answer = web.client.post(
        "/api/v1/runs",
        content=giant(),
        headers=integrator.headers | {"Content-Type": "application/json"},
    )
    assert answer.status_code == 413 and answer.json()["code"] == "too-large"


async def test_sockets_open_for_our_own_pages_only(web: Web) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidStatus

    async def is_let_in(origin: str | None) -> bool:
        try:
            async with connect(f"ws://127.0.0.1:{port}/ws/live", origin=origin) as socket:
                # Inside, the consumer finds no session and closes with its own code.
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
                return True
        except InvalidStatus as refused:
            return refused.response.status_code != 403

    port = web.client.base_url.port
    ours, others = f"http://127.0.0.1:{port}", ("http://127.0.0.1:1", "https://evil.example", "null", None)
    assert await is_let_in(ours)
    assert {origin: await is_let_in(origin) for origin in others} == dict.fromkeys(others, False)
    assert await is_let_in(ours), "the others did not shut the door"
