"""A real web process turns slow, greedy and malformed clients away without cost to others."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import connection

from durableagents.server.bounded_protocols import HEAD_SECONDS
from tests.conftest import database_urls, process_env_in
from tests.kept import clean
from tests.system.api.web import Web, serving

pytestmark = pytest.mark.django_db
CLIENTS = 200  # of each kind


class Door(Web):
    log: Path

    def knock(self, *, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60, source_address=(source, 0))

    def answer(self, raw: bytes, *, source: str = "127.0.0.1") -> bytes:
        with closing(self.knock(source=source)) as link:
            with suppress(BrokenPipeError):  # it has read enough, and has answered
                link.sendall(raw)
            return rest_of(link)

    @property
    def said(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def rss(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


def rest_of(link: socket.socket) -> bytes:
    parts = []
    try:
        while part := link.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.fixture(scope="module")
def door(
    postgres: Any, django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    """One web process for all tests, so that leftovers of one would fail the next."""
    folder = tmp_path_factory.mktemp("door")
    with django_db_blocker.unblock():
        env, admin = process_env_in(folder, postgres), database_urls(postgres)["admin"]
        connection.close()
    try:
        with (folder / "log").open("wb") as log, serving(env, kind=Door, stderr=log, exit_code=0) as running:
            running.log = folder / "log"
            yield running
    finally:
        clean(admin)
    assert "Traceback" not in (folder / "log").read_text()


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:80]
    return int(answer.split(b" ", 2)[1])


NO_REQUESTS = [
    (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
    (b"GET /\r\n\r\n", 400),
    (b"GET / HTTP/0.9\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    (b"GET / HTTP/1.1\nHost: localhost\n\n", 400),
    (b"GET / HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: y\r\n z\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n", 400),
    (b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 405),
    (b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
    (b"\x16\x03\x01\x00\xa5\x01\x00\x00\r\n\r\n", 400),
    (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 10_000 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000, 431),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 100_000, 431),
]


def test_what_is_no_request_is_refused_at_the_door(door: Door) -> None:
    for raw, code in NO_REQUESTS:
        assert status(door.answer(raw)) == code, raw[:200]
        assert door.is_alive(), raw[:200]


def test_headers_without_end_cost_neither_memory_nor_the_others_time(door: Door) -> None:
    before = door.rss
    for _ in range(5):
        with closing(door.knock()) as link:
            link.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
            try:
                for _ in range(60):
                    link.sendall(b"a" * 1_000_000)
            except (ConnectionResetError, BrokenPipeError):
                continue
            pytest.fail("60 MB of header were taken")
    assert door.is_alive()
    assert door.rss < before * 1.2


def test_slow_clients_are_sent_away_and_the_door_is_free_again(door: Door) -> None:
    """Each kind of unfinished request, also one byte every second, which resets no timer."""
    halves = [
        b"",
        b"GET / HTTP/1.1\r\nHost: loc",
        b"GET /ws/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: ",
        b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc",
    ]
    began = time.monotonic()
    with ExitStack() as stack:
        links = [stack.enter_context(closing(door.knock())) for _ in halves]
        for link, half in zip(links, halves, strict=True):
            link.sendall(half)
        assert door.is_alive(), "they wait, nobody else does"
        assert drips(stack.enter_context(closing(door.knock()))) < 4 * HEAD_SECONDS, "it may go on forever"
        answers = [rest_of(link) for link in links]
    assert time.monotonic() - began < 55, "not forever"
    assert [status(answer) for answer in answers] == [408] * 4


def drips(link: socket.socket) -> float:
    link.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
    began = time.monotonic()
    while (lasted := time.monotonic() - began) < 4 * HEAD_SECONDS:
        try:
            link.sendall(b"a")
        except ConnectionError:
            break
        time.sleep(1)  # a slow client
    return lasted


def test_bad_requests_leave_no_line_each_in_the_log(door: Door) -> None:
    before = len(door.said)
    for _ in range(50):
        door.answer(b"nonsense\r\n\r\n")
    door.client.get("/login")  # with its cookie the form is checked
    for _ in range(10):
        form = door.client.post("/login", data={f"f{n}": "1" for n in range(2000)})
        query = door.client.get("/login?" + "&" * 2000)
        assert form.status_code == query.status_code == 400 and "too many fields" in form.text, form.text
    requests, others = [], []
    for line in door.said[before:]:
        (requests if " durableagents.web " in line else others).append(line)
    assert len(requests) <= 21 and len(others) < 10, (requests, others)


def test_forged_proxy_headers_do_not_give_a_fresh_address(door: Door) -> None:
    """Without a trusted proxy, forwarded addresses don't count."""
    page = door.client.get("/login")
    token = page.text.split('name="csrfmiddlewaretoken" value="', 1)[1].split('"', 1)[0]
    answers = [
        door.client.post(
            "/login",
            data={"username": "nobody", "password": "x", "csrfmiddlewaretoken": token},
            headers={"X-Forwarded-For": f"198.51.100.{n}"},
        ).status_code
        for n in range(12)
    ]
    assert answers == [400] * 10 + [429] * 2


@pytest.mark.django_db(transaction=True)
def test_slow_and_greedy_clients_cost_a_holder_of_a_key_no_request(door: Door, operator: Any) -> None:
    """Without a proxy: 200 clients that never finish a request, and 200 that ask without a key as fast as they can."""
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            stack.enter_context(closing(door.knock())).sendall(b"GET / HTTP/1.1\r\nHost: local")
        greedy = stack.enter_context(crowd(door.port))
        alive, known = [], []
        until = time.monotonic() + HEAD_SECONDS
        while time.monotonic() < until:
            began = time.monotonic()
            assert door.is_alive()
            alive.append(time.monotonic() - began)
            known.append(door.client.get("/api/v1/me", headers=operator.headers).status_code)
        assert greedy.poll() is None, "they are still at it"
    print(f"/healthz: p50 {pth(alive, 50):.3f} s, p99 {pth(alive, 99):.3f} s; {len(known)} requests with a key")  # noqa: T201
    assert Counter(known) == {200: len(known)} and pth(alive, 95) < 0.5


def pth(times: list[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


_CROWD = """
import asyncio, sys
async def ask(port):
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while True:
                writer.write(b"GET /api/v1/runs HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
                if not await reader.read(65536):
                    break
        except OSError:
            await asyncio.sleep(0.1)
async def crowd(port, count):
    await asyncio.gather(*(ask(port) for _ in range(count)))
asyncio.run(crowd(*map(int, sys.argv[1:])))
"""


@contextmanager
def crowd(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Let clients without a key ask, each again as soon as it has its answer. They end with the block."""
    process = subprocess.Popen([sys.executable, "-c", _CROWD, str(port), str(CLIENTS)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
