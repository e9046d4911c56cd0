"""A request is one thread's from beginning to end, leaves nothing behind in it, and keeps its place until it has
ended."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from django.core.signals import request_finished, request_started
from django.db import connections
from django.db.backends.signals import connection_created

from durableagents.server.admission import Admission
from durableagents.server.handler import Handler
from runs.connections import dsn
from runs.models import Run
from tests.conftest import CHECKOUT
from tests.integration.api.conftest import START, Api

pytestmark = pytest.mark.django_db(transaction=True)
STYLE = next((CHECKOUT / "static").rglob("*.css"))
STYLED = f"/static/{STYLE.relative_to(CHECKOUT / 'static')}"


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


async def ask(app: Any, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
    """One request, as a server hands it over."""
    answer, parts = Answer(), [body[:20], body[20:]]
    names = {"host": "127.0.0.1", "content-length": str(len(body)), **(headers or {})}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in names.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message["body"]

    await app(scope, receive, send)
    return answer


@pytest.fixture
def handler() -> Iterator[Handler]:
    made = Handler()
    yield made
    made._threads.shutdown()


@pytest.fixture
def told() -> Iterator[list[tuple[str, int]]]:
    """What happens in which thread: requests begin and end, connections are opened."""
    found: list[tuple[str, int]] = []
    receivers: list[tuple[Any, Callable[..., None]]] = []
    for name, signal in (("began", request_started), ("connected", connection_created), ("ended", request_finished)):

        def note(name: str = name, **_: Any) -> None:
            found.append((name, threading.get_ident()))

        signal.connect(note, weak=False)
        receivers.append((signal, note))
    yield found
    for signal, note in receivers:
        signal.disconnect(note)


async def started(**fit: Any) -> int:
    """How many runs there are, asked in a thread that keeps no connection either."""

    def count() -> int:
        try:
            return Run.objects.filter(**fit).count()
        finally:
            connections.close_all()

    return await asyncio.to_thread(count)


async def is_free_of_connections(handler: Handler) -> bool:
    """Whether the threads that have answered have given theirs back. As many ask as there may be threads, and each
    waits for all."""
    count = len(handler._threads._threads)
    together = threading.Barrier(count)

    def look() -> bool:
        together.wait(10)
        return connections["default"].connection is None

    return all(
        await asyncio.gather(
            *(asyncio.get_running_loop().run_in_executor(handler._threads, look) for _ in range(count))
        )
    )


async def test_a_request_is_one_threads_from_beginning_to_end(
    handler: Handler, integrator: Api, told: list[tuple[str, int]]
) -> None:
    headers = integrator.headers | {"Content-Type": "application/json", "Idempotency-Key": "k"}
    answer = await ask(handler, "POST", "/api/v1/runs", headers, json.dumps(START).encode())
    assert answer.status == 201, answer.body
    assert [name for name, _ in told] == ["began", "connected", "ended"]
    assert len({thread for _, thread in told}) == 1 and told[0][1] != threading.get_ident()
    assert await is_free_of_connections(handler)
    assert await started(id=json.loads(answer.body)["id"]) == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/runs", 200),
        ("GET", "/api/v1/none", 404),
        ("GET", "/runs", 302),
        ("PUT", "/api/v1/runs", 405),
        ("GET", STYLED, 200),
        ("GET", "/%ff", 404),
    ],
)
async def test_whatever_is_answered_ends_once_and_leaves_no_connection(
    handler: Handler, integrator: Api, told: list[tuple[str, int]], method: str, path: str, status: int
) -> None:
    headers = integrator.headers if path.startswith("/api/") else {}
    assert (await ask(handler, method, path, headers)).status == status
    assert [name for name, _ in told if name != "connected"] == ["began", "ended"]
    assert await is_free_of_connections(handler)


async def test_one_that_breaks_the_handler_ends_too(handler: Handler, told: list[tuple[str, int]]) -> None:
    async def nothing() -> dict[str, Any]:
        return {"type": "http.request"}

    async def nowhere(message: dict[str, Any]) -> None:
        raise AssertionError(message)

    with pytest.raises(KeyError):
        await handler({"type": "http", "headers": []}, nothing, nowhere)
    assert [name for name, _ in told] == ["began", "ended"] and await is_free_of_connections(handler)


async def test_many_at_once_are_each_others_no_business(handler: Handler, integrator: Api) -> None:
    def body(n: int) -> bytes:
        return json.dumps(START | {"tags": [f"t{n}"]}).encode()

    headers = integrator.headers | {"Content-Type": "application/json"}
    answers = await asyncio.gather(*(ask(handler, "POST", "/api/v1/runs", headers, body(n)) for n in range(40)))
    assert [json.loads(answer.body)["tags"] for answer in answers] == [[f"t{n}"] for n in range(40)]
    assert await is_free_of_connections(handler)


async def test_a_file_comes_whole_and_its_head_alone(handler: Handler) -> None:
    whole = await ask(handler, "GET", STYLED)
    assert whole.status == 200 and whole.body == STYLE.read_bytes()
    assert whole.headers["content-length"] == str(len(whole.body)) and whole.headers["content-type"].startswith(
        "text/css"
    )
    head = await ask(handler, "HEAD", STYLED)
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", whole.headers["content-length"])
    known = await ask(handler, "GET", STYLED, {"If-Modified-Since": whole.headers["last-modified"]})
    assert (known.status, known.body) == (304, b"")
    part = await ask(handler, "GET", STYLED, {"Range": "bytes=2-5"})
    assert (part.status, part.body) == (206, whole.body[2:6])


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await is_so():  # noqa: ASYNC110  a lock in the database is no event here
            await asyncio.sleep(0.01)


async def test_a_client_that_left_keeps_its_place_until_its_request_has_ended(
    handler: Handler, integrator: Api
) -> None:
    """The thread can't be cut off: were its place given away, more would be worked on than there are connections
    for."""
    hall = Admission(handler)
    headers = integrator.headers | {"Content-Type": "application/json"}
    async with await psycopg.AsyncConnection.connect(dsn()) as other:
        await other.execute("LOCK TABLE runs_searchterm IN EXCLUSIVE MODE")
        leaving = asyncio.create_task(ask(hall, "POST", "/api/v1/runs", headers, json.dumps(START).encode()))

        async def is_stuck() -> bool:
            cursor = await other.execute(
                "SELECT 1 FROM pg_locks WHERE relation = 'runs_searchterm'::regclass AND NOT granted"
            )
            return await cursor.fetchone() is not None

        await until(is_stuck)
        leaving.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not leaving.done() and hall.lanes["known"].running == 1
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert hall.lanes["known"].running == 0
    assert await started() == 1


async def test_a_client_that_leaves_while_it_sends_is_not_answered(
    handler: Handler, told: list[tuple[str, int]]
) -> None:
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def nowhere(message: dict[str, Any]) -> None:
        raise AssertionError(message)

    await handler({"type": "http", "headers": []}, gone, nowhere)
    assert told == []


async def test_a_rehearsal_changes_nothing(handler: Handler, told: list[tuple[str, int]]) -> None:
    await asyncio.get_running_loop().run_in_executor(handler._threads, handler.rehearse)
    assert [name for name, _ in told] == ["began", "connected", "ended"]
    assert await is_free_of_connections(handler) and await started() == 0
