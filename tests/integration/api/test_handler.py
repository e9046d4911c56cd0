"""One thread handles a request from start to end, leaves no state behind and holds its slot until it ends."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.db import connections
from django.db.backends.signals import connection_created

from durableagents.identity.auth import issue_key
from durableagents.server import limits
from durableagents.server.admission import Admission
from durableagents.server.handler import Handler
from durableagents.server.limits import ANONYMOUS_LIMIT, API_LIMIT, HEADER_LIMIT, BodyLimit, Headers
from durableagents.server.requests import Requests
from ledger.web import downloads
from runs.connections import dsn
from runs.models import Run
from tests.cases import each_case
from tests.conftest import CHECKOUT
from tests.integration.api.conftest import START, Api, person

STYLE = next((CHECKOUT / "static").rglob("*.css"))
STYLED = f"/static/{STYLE.relative_to(CHECKOUT / 'static')}"


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


async def ask(app: Any, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
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
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer


@pytest.fixture
def handler() -> Iterator[Handler]:
    made = Handler()
    yield made
    made._threads.shutdown()


@pytest.fixture
def told() -> Iterator[list[tuple[str, int]]]:
    """Record which thread begins and ends requests and opens connections."""
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
    def count() -> int:
        try:
            return Run.objects.filter(**fit).count()
        finally:
            connections.close_all()

    return await asyncio.to_thread(count)


async def is_free_of_connections(handler: Handler) -> bool:
    """Return whether all threads have returned their connections: one call per thread, each waiting for all."""
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


@pytest.mark.django_db(transaction=True)
async def test_a_request_stays_in_one_thread(handler: Handler, integrator: Api, told: list[tuple[str, int]]) -> None:
    headers = integrator.headers | {"Content-Type": "application/json", "Idempotency-Key": "k"}
    answer = await ask(handler, "POST", "/api/v1/runs", headers, json.dumps(START).encode())
    assert answer.status == 201, answer.body
    assert [name for name, _ in told] == ["began", "connected", "ended"]
    assert len({thread for _, thread in told}) == 1 and told[0][1] != threading.get_ident()
    assert await is_free_of_connections(handler)
    assert await started(id=json.loads(answer.body)["id"]) == 1


@pytest.mark.django_db(transaction=True)
async def test_a_started_run_has_the_callers_trace(handler: Handler, integrator: Api, caplog: Any) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = integrator.headers | {"Content-Type": "application/json", "X-Request-Id": "from-a-client"}
    app, body, found = Requests(handler), json.dumps(START).encode(), {}
    with caplog.at_level("INFO", "durableagents.web"):
        for parent in (
            f"00-{trace}-00f067aa0ba902b7-01",
            f"00-{'0' * 32}-00f067aa0ba902b7-01",
            "'; DROP TABLE runs_run",
        ):
            answer = await ask(app, "POST", "/api/v1/runs", headers | {"traceparent": parent}, body)
            assert answer.status == 201 and answer.headers["x-request-id"] == "from-a-client"
            found[parent] = json.loads(answer.body)["trace_id"]
    first, *others = found.values()
    assert first == trace and len({first, *others}) == 3 and all(len(each) == 32 for each in others)
    assert [record.fields["actor"].partition(":")[0] for record in caplog.records] == ["key"] * 3
    refused = json.loads((await ask(app, "GET", "/api/v1/none", headers)).body)
    assert refused["request_id"] == "from-a-client"
    assert await is_free_of_connections(handler)


@pytest.mark.django_db(transaction=True)
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


@pytest.mark.django_db(transaction=True)
async def test_one_that_breaks_the_handler_ends_too(handler: Handler, told: list[tuple[str, int]]) -> None:
    async def nothing() -> dict[str, Any]:
        return {"type": "http.request"}

    async def nowhere(message: dict[str, Any]) -> None:
        raise AssertionError(message)

    with pytest.raises(KeyError):
        await handler({"type": "http", "headers": []}, nothing, nowhere)
    assert [name for name, _ in told] == ["began", "ended"] and await is_free_of_connections(handler)


@pytest.mark.django_db(transaction=True)
async def test_many_at_once_are_each_others_no_business(handler: Handler, integrator: Api) -> None:
    def body(n: int) -> bytes:
        return json.dumps(START | {"tags": [f"t{n}"]}).encode()

    headers = integrator.headers | {"Content-Type": "application/json"}
    answers = await asyncio.gather(*(ask(handler, "POST", "/api/v1/runs", headers, body(n)) for n in range(40)))
    assert [json.loads(answer.body)["tags"] for answer in answers] == [[f"t{n}"] for n in range(40)]
    assert await is_free_of_connections(handler)


@pytest.mark.django_db(transaction=True)
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


@pytest.mark.needs
@pytest.mark.django_db(transaction=True)
async def test_a_client_that_left_keeps_its_place_until_the_end(handler: Handler, integrator: Api) -> None:
    """The thread can't be interrupted: freeing its slot would admit more requests than there are connections."""
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


@pytest.mark.django_db(transaction=True)
async def test_slow_download_holds_neither_a_place_nor_a_connection(handler: Handler, integrator: Api) -> None:
    hall, slow = Admission(handler), asyncio.Event()
    headers = integrator.headers | {"Content-Type": "application/json"}
    run = json.loads((await ask(hall, "POST", "/api/v1/runs", headers, json.dumps(START).encode())).body)["id"]

    async def slowly(scope: Any, receive: Any, send: Any) -> None:
        async def later(message: Any) -> None:
            await slow.wait()
            await send(message)

        await hall(scope, receive, later)

    download = asyncio.create_task(ask(slowly, "GET", f"/api/v1/runs/{run}/events/1/content", headers))

    async def has_left() -> bool:
        return downloads._PLACES._value == 15 and hall.lanes["known"].running == 0

    await until(has_left)
    assert await is_free_of_connections(handler) and not download.done()
    slow.set()
    answer = await download
    assert answer.status == 200 and len(answer.body) == int(answer.headers["content-length"])
    assert json.loads(answer.body) == START["input"] and downloads._PLACES._value == 16


@pytest.mark.django_db(transaction=True)
async def test_a_client_that_leaves_early_is_not_answered(handler: Handler, told: list[tuple[str, int]]) -> None:
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def nowhere(message: dict[str, Any]) -> None:
        raise AssertionError(message)

    await handler({"type": "http", "headers": []}, gone, nowhere)
    assert told == []


@pytest.mark.django_db(transaction=True)
async def test_a_rehearsal_changes_nothing(handler: Handler, told: list[tuple[str, int]]) -> None:
    await asyncio.get_running_loop().run_in_executor(handler._threads, handler.rehearse)
    assert [name for name, _ in told] == ["began", "connected", "ended"]
    assert await is_free_of_connections(handler) and await started() == 0


async def _send(
    chunks: list[bytes],
    *,
    path: str = "/api/v1/signals",
    length: int | None = None,
    has_key: bool = True,
    is_whole: bool = True,
    **bounds: Any,
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Return the client's answer, and the chunks that reached the application behind the limit."""
    waiting = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if is_whole:
        waiting.append({"type": "http.request", "body": b"", "more_body": False})
    got: list[bytes] = []
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        message = await receive()
        assert not message["more_body"]
        got.append(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    headers = [(b"authorization", b"Bearer x")] if has_key else []
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    await BodyLimit(app, **bounds)({"type": "http", "path": path, "headers": headers}, receive, send)
    return sent, got


async def test_a_body_within_the_limit_passes() -> None:
    sent, got = await _send([b"x" * API_LIMIT], length=API_LIMIT)
    assert sent[0]["status"] == 200 and sum(map(len, got)) == API_LIMIT


async def test_an_announced_giant_is_refused_before_the_application_sees_it() -> None:
    sent, got = await _send([b"x" * API_LIMIT, b"x"], length=API_LIMIT + 1)
    assert sent[0]["status"] == 413 and got == []
    assert json.loads(sent[1]["body"])["code"] == "too-large"


async def test_input_of_a_start_may_be_large_and_large_bodies_leave_room_for_others() -> None:
    size = limits.START_LIMIT
    sent, got = await _send([b"x" * size], path="/api/v1/runs", length=size)
    assert sent[0]["status"] == 200 and sum(map(len, got)) == size
    sent, got = await _send([], path="/api/v1/runs", length=size + 1)
    assert f"has {size + 1} bytes, but may have at most 65 MiB. Store large data elsewhere" in sent[1]["body"].decode()
    sent, got = await _send([b"x"] * 3, path="/api/v1/runs", length=size, is_whole=False, body_seconds=0.05)
    assert "did not come within 0 s" in sent[1]["body"].decode()
    limit = BodyLimit(None)
    limit.held_bytes = limits.MAX_LARGE_BYTES + 1
    assert limit.is_full(limits.PAGE_LIMIT + 1) and not limit.is_full(limits.PAGE_LIMIT)


async def test_a_giant_that_did_not_say_so_is_refused_on_the_way() -> None:
    sent, _ = await _send([b"x" * 300_000] * 5)
    assert sent[0]["status"] == 413


@each_case(
    ("path", "has_key", "limit"),
    [
        ("/api/v1/callbacks/nope", False, "callback"),
        ("/api/v1/callbacks/nope", True, "callback"),
        ("/login", False, ANONYMOUS_LIMIT),
        ("/api/v1/runs", False, ANONYMOUS_LIMIT),
    ],
)
async def test_who_says_nothing_of_himself_has_nothing_large_to_send(path: str, has_key: bool, limit: Any) -> None:
    limit = settings.DURABLEAGENTS.callback_bytes if limit == "callback" else limit
    assert limit <= API_LIMIT / 4
    sent, got = await _send([b"x" * limit], path=path, has_key=has_key)
    assert sent[0]["status"] == 200 and got == [b"x" * limit]
    sent, got = await _send([b"x" * limit, b"x"], path=path, has_key=has_key)
    assert sent[0]["status"] == 413 and got == []


@each_case("path", ["/", "/runs/new", "/runs", "/login", "/admin/login/", "/nowhere", "/apis", "/API/v1/runs"])
async def test_people_are_told_on_a_page(path: str) -> None:
    sent, got = await _send([b"<b>x"], path=path, length=3_000_000)
    headers, page = dict(sent[0]["headers"]), sent[1]["body"].decode()
    assert sent[0]["status"] == 413 and got == [] and headers[b"content-type"] == b"text/html; charset=utf-8"
    assert (
        "<h1>Too large</h1>" in page
        and "The body has 3000000 bytes, but may have at most 2.5 MiB." in page
        and "Nothing was changed." in page
    )
    assert "base.css" in page and "<b>x" not in page
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"] and headers[b"cache-control"] == b"no-store"
    slow, _ = await _send([b"x"], path=path, is_whole=False, body_seconds=0.05)
    assert slow[0]["status"] == 408 and b"<h1>Too slow</h1>" in slow[1]["body"]
    full, _ = await _send([b"x" * 10], path=path, most_bytes=5)
    assert full[0]["status"] == 503 and b"<h1>Busy</h1>" in full[1]["body"]
    assert dict(full[0]["headers"])[b"retry-after"]


@each_case("path", ["/api", "/api/v1/runs/bulk", "/api/nowhere", "/api/v1/callbacks/x", "/healthz", "/readyz"])
async def test_programs_are_told_in_a_document(path: str) -> None:
    sent, _ = await _send([b"x"], path=path, length=3_000_000)
    assert dict(sent[0]["headers"])[b"content-type"] == b"application/problem+json"
    assert json.loads(sent[1]["body"])["code"] == "too-large" and sent[0]["status"] == 413


@pytest.mark.django_db(transaction=True)
def test_what_is_too_large_is_refused_before_anybody_asks_whose_it_is() -> None:
    """This is the one answer before 401, 403 and 404: it costs no query and reveals nothing."""
    handler = Handler()
    try:
        auditor = f"Bearer {issue_key(person('auditor', 'auditor'), 'test')}"
        for path, key, status in (
            ("/api/v1/runs", "Bearer nobodys", 401),
            ("/api/v1/runs", auditor, 403),
            ("/api/v1/callbacks/nobodys", auditor, 404),
        ):
            with_key = {"authorization": key, "content-type": "application/json"}
            at = {"path": path, "headers": [(b"authorization", b"x")]}
            small = asyncio.run(ask(BodyLimit(handler), "POST", path, with_key, b"{}"))
            large = asyncio.run(ask(BodyLimit(handler), "POST", path, with_key, b"x" * (limits.limit_for(at) + 1)))
            assert (small.status, large.status) == (status, 413)
            assert json.loads(large.body)["code"] == "too-large"
    finally:
        handler._threads.shutdown()


async def test_a_body_that_does_not_come_is_given_up() -> None:
    sent, got = await _send([b"x"] * 3, is_whole=False, body_seconds=0.05)
    assert sent[0]["status"] == 408 and got == [] and json.loads(sent[1]["body"])["code"] == "too-slow"


async def test_all_bodies_together_are_bounded_and_what_was_held_is_given_back() -> None:
    let_go, sent = asyncio.Event(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await let_go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            sent.append((message["status"], dict(message["headers"])))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * 1000, "more_body": False}

    limit = BodyLimit(app, most_bytes=3500)
    scope = {"type": "http", "path": "/api/v1/runs", "headers": [(b"authorization", b"Bearer x")]}
    several = [asyncio.create_task(limit(scope, receive, send)) for _ in range(5)]
    await asyncio.gather(*several[3:])
    assert [status for status, _ in sent] == [503, 503] and sent[0][1][b"retry-after"]
    let_go.set()
    await asyncio.gather(*several)
    assert [status for status, _ in sent[2:]] == [200] * 3 and limit.held_bytes == 0


@each_case(
    ("more", "status"),
    [
        ({"headers": [(b"x", b"y" * HEADER_LIMIT)]}, 431),
        ({"headers": [(b"x%d" % n, b"y") for n in range(5000)]}, 431),
        ({"headers": [(b"cookie", b"y" * 60_000)]}, 431),
        ({"raw_path": b"/" + b"y" * HEADER_LIMIT}, 431),
        ({"query_string": b"y" * HEADER_LIMIT}, 431),
        ({"headers": [(b"cookie", b"y" * 8_000)]}, 200),
        ({"headers": [], "is_bare": True}, 400),
        ({"headers": [(b"host", b"a")]}, 400),
        ({"http_version": "0.9"}, 400),
        ({"http_version": "1.0", "is_bare": True}, 200),
    ],
)
async def test_headers_are_bounded_as_a_whole(more: dict[str, Any], status: int) -> None:
    items: list[int] = []

    async def send(message: dict[str, Any]) -> None:
        items.append(message.get("status", 0))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/x",
        "raw_path": b"/x",
        "query_string": b"",
        "headers": [],
        **more,
    }
    if not scope.pop("is_bare", False):
        scope["headers"] = [(b"host", b"localhost"), *scope["headers"]]
    await Headers(app)(scope, None, send)  # type: ignore[arg-type]
    assert items[0] == status
