"""The real web process: it says that it lives, it outlasts the database, and it says goodbye."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import psutil
import pytest
from django.conf import settings
from django.test import Client

from runs.models import Process
from tests.api.proxy import Wire
from tests.conftest import CHECKOUT

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


class Web:
    """A running web process and a client to it."""

    def __init__(self, env: dict[str, str], *options: str) -> None:
        port = env["PORT"]
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "web", *options], env=env, cwd=CHECKOUT, start_new_session=True,
        )  # fmt: skip
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=15)

    def until(self, is_so: Callable[[], bool], what: str, seconds: float = 30) -> None:
        """Ask until it is so."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the web process ended"
            try:
                if is_so():
                    return
            except httpx.TransportError:
                pass  # not listening yet
            time.sleep(0.05)
        pytest.fail(f"not within {seconds} s: {what}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


@pytest.fixture
def wire(tmp_path_factory: pytest.TempPathFactory, process_env: dict[str, str]) -> Iterator[Wire]:
    """The web process's way to the database."""
    address = urlsplit(process_env["DATABASE_URL"])
    (host,) = parse_qs(address.query)["host"]
    port = parse_qs(address.query).get("port", ["5432"])[0]
    wire = Wire(tmp_path_factory.mktemp("w"), f"{host}/.s.PGSQL.{port}")
    wire.mend()
    yield wire
    if wire._listener is not None:
        wire.cut()


@pytest.fixture
def web(process_env: dict[str, str], wire: Wire) -> Iterator[Web]:
    address = urlsplit(process_env["DATABASE_URL"])
    user = address.netloc.rsplit("@", 1)[0]
    through = f"postgresql://{user}@/{address.path.lstrip('/')}?host={wire.folder}&port=5432"
    running = Web(process_env | {"DATABASE_URL": through, "DATABASE_OWNER_URL": ""})
    try:
        running.until(lambda: running.client.get("/healthz").status_code == 200, "it answers")
        yield running
    finally:
        running.client.close()
        running.process.kill()
        running.process.wait()


def test_it_lives_in_the_fleet_and_leaves_it(web: Web, operator: Any) -> None:
    def rows() -> list[dict[str, Any]]:
        answer = web.client.get("/api/v1/fleet", headers=operator.headers)
        return [row for row in answer.json()["results"] if row["kind"] == "web"]

    web.until(lambda: [row["pid"] for row in rows()] == [web.process.pid], "it is in the fleet")
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


def test_it_outlasts_the_database(web: Web, wire: Wire, operator: Any) -> None:
    def runs() -> httpx.Response:
        return web.client.get("/api/v1/runs", headers=operator.headers)

    assert runs().status_code == 200
    wire.cut()
    began = time.monotonic()
    refused = web.client.get("/api/v1/runs", headers=operator.headers)
    assert time.monotonic() - began < 30
    assert refused.status_code == 503 and refused.headers["Content-Type"] == "application/problem+json"
    assert refused.headers["Retry-After"]
    ready = web.client.get("/readyz").json()
    assert ready["checks"]["database"]["ok"] is False
    assert web.client.get("/healthz").status_code == 200
    wire.mend()
    began = time.monotonic()
    web.until(lambda: runs().status_code == 200, "it answers again", seconds=30)


def test_a_database_that_stands_still_makes_it_not_ready_and_keeps_nobody_waiting(web: Web, wire: Wire) -> None:
    """Every probe is answered, however many came before and still wait for the database, and the process can be
    ended."""
    web.until(lambda: web.client.get("/readyz").json()["checks"]["database"]["ok"], "it reaches the database")
    wire.stall()
    threads = psutil.Process(web.process.pid).num_threads()
    for _ in range(4):
        answer = web.client.get("/readyz", timeout=60)
        told = answer.json()["checks"]["database"]
        assert (answer.status_code, told["ok"]) == (503, False) and told["age_seconds"] > 0
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


def test_nor_does_it_where_many_connections_lay_idle(web: Web, wire: Wire, operator: Any) -> None:
    def runs(_: int = 0) -> int:
        return httpx.get(f"{web.client.base_url}/api/v1/runs", headers=operator.headers, timeout=30).status_code

    with ThreadPoolExecutor(8) as several:
        web.until(
            lambda: set(several.map(runs, range(24))) == {200} and wire.connections >= 6, "many connections are open"
        )
        wire.cut()
        wire.mend()
        assert [runs() for _ in range(4)] == [200] * 4
        wire.cut()
        wire.mend()
        assert set(several.map(runs, range(8))) == {200}


def test_a_restart_of_the_database_between_two_requests_costs_none(web: Web, wire: Wire, operator: Any) -> None:
    def runs() -> httpx.Response:
        return web.client.get("/api/v1/runs", headers=operator.headers)

    assert [runs().status_code for _ in range(3)] == [200] * 3
    wire.cut()
    wire.mend()
    assert runs().status_code == 200


def test_connections_are_shared_and_bounded(web: Web, operator: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from django.db import connection

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
        "/api/v1/runs", content=iter([b'{"agent": ', b'"nobody", "input": 1}']),
        headers=integrator.headers | {"Content-Type": "application/json"},
    )  # fmt: skip
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
                # Past the door the consumer finds no session and says so in its own way.
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


@pytest.fixture
def several(process_env: dict[str, str]) -> Iterator[Web]:
    # The test signs people in by itself, so it needs the key that the processes know sessions by.
    running = Web(process_env | {"DURABLEAGENTS_SECRET_KEY": settings.SECRET_KEY}, "--processes=2")
    try:
        running.until(lambda: len(serving()) == 2, "both serve", seconds=60)
        yield running
    finally:
        running.client.close()
        running.process.terminate()
        try:
            running.process.wait(20)
        finally:
            running.process.kill()
            running.process.wait()


def serving() -> set[int]:
    return set(Process.objects.filter(kind="web", ended_at=None).values_list("pid", flat=True))


def asked(web: Web, times: int = 40) -> set[int]:
    """The statuses of requests on connections of their own, so that each process gets some."""
    return {httpx.get(f"{web.client.base_url}/healthz", timeout=15).status_code for _ in range(times)}


def test_several_processes_serve_as_one(several: Web) -> None:
    """One socket, one count of guesses, and a process that dies is replaced while the other serves."""
    assert asked(several) == {200}
    answers = [sign_in_wrongly(several) for _ in range(13)]
    assert answers == [400] * 10 + [429] * 3, "whichever process was asked"

    victim = min(serving())
    psutil.Process(victim).kill()
    assert asked(several) == {200}
    several.until(lambda: len(serving() - {victim}) == 2, "another in its place", seconds=60)
    several.stop()
    assert several.process.returncode == 0 and not serving() - {victim}


async def test_a_socket_is_served_by_whichever_process(several: Web, operator: Any, django_user_model: Any) -> None:
    """Both hear what happens, and both notice a session's end."""
    from channels.db import database_sync_to_async  # leaves no connection behind in its thread
    from websockets.asyncio.client import connect

    def signed_in() -> Any:
        client = Client()
        client.force_login(django_user_model.objects.get(username="operator"))
        return client

    client = await database_sync_to_async(signed_in)()
    port = several.client.base_url.port
    name = f"durableagents_session_{port}"
    cookie = f"{name}={await database_sync_to_async(lambda: client.session.session_key)()}"
    links = [
        await connect(f"ws://127.0.0.1:{port}/ws/live", origin=f"http://127.0.0.1:{port}",
                      additional_headers={"Cookie": cookie})
        for _ in range(12)
    ]  # fmt: skip
    assert all([await link.recv() for link in links])
    await database_sync_to_async(client.logout)()
    for link in links:
        await link.wait_closed()
    assert {link.close_code for link in links} == {4401}


def sign_in_wrongly(web: Web) -> int:
    with httpx.Client(base_url=web.client.base_url, timeout=15) as client:
        token = client.get("/login").text.split('name="csrfmiddlewaretoken" value="', 1)[1].split('"', 1)[0]
        return client.post("/login", data={"username": "x", "password": "y", "csrfmiddlewaretoken": token}).status_code
