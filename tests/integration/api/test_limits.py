"""A body that is too large or too slow is answered, not stored and not cut off."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.conf import settings

from durableagents.identity.auth import issue_key
from durableagents.server.handler import Handler
from durableagents.server.limits import ANONYMOUS_LIMIT, API_LIMIT, HEADER_LIMIT, BodyLimit, Headers
from tests.cases import each_case
from tests.integration.api.conftest import person
from tests.integration.api.test_handler import ask


async def _send(
    chunks: list[bytes],
    *,
    path: str = "/api/v1/runs",
    length: int | None = None,
    has_key: bool = True,
    is_whole: bool = True,
    **bounds: Any,
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """What the client gets, and what the application behind the limit got."""
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
        "<h1>Too large</h1>" in page and "The body is larger than 2.5 MiB." in page and "Nothing was changed." in page
    )
    assert "base.css" in page and "<b>x" not in page
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"] and headers[b"cache-control"] == b"no-store"
    slow, _ = await _send([b"x"], path=path, is_whole=False, body_seconds=0.05)
    assert slow[0]["status"] == 408 and b"<h1>Too slow</h1>" in slow[1]["body"]
    full, _ = await _send([b"x" * 10], path=path, most_bytes=5)
    assert full[0]["status"] == 503 and b"<h1>Busy</h1>" in full[1]["body"]
    assert dict(full[0]["headers"])[b"retry-after"]


@each_case("path", ["/api", "/api/v1/runs", "/api/nowhere", "/api/v1/callbacks/x", "/healthz", "/readyz"])
async def test_programs_are_told_in_a_document(path: str) -> None:
    sent, _ = await _send([b"x"], path=path, length=3_000_000)
    assert dict(sent[0]["headers"])[b"content-type"] == b"application/problem+json"
    assert json.loads(sent[1]["body"])["code"] == "too-large" and sent[0]["status"] == 413


@pytest.mark.django_db(transaction=True)
def test_what_is_too_large_is_refused_before_anybody_asks_whose_it_is() -> None:
    """The one answer that comes before 401, 403 and 404. It costs no look into the database and tells nobody
    anything."""
    handler = Handler()
    try:
        auditor = f"Bearer {issue_key(person('auditor', 'auditor'), 'test')}"
        for path, key, status in (
            ("/api/v1/runs", "Bearer nobodys", 401),
            ("/api/v1/runs", auditor, 403),
            ("/api/v1/callbacks/nobodys", auditor, 404),
        ):
            with_key = {"authorization": key, "content-type": "application/json"}
            small = asyncio.run(ask(BodyLimit(handler), "POST", path, with_key, b"{}"))
            large = asyncio.run(ask(BodyLimit(handler), "POST", path, with_key, b"x" * (API_LIMIT + 1)))
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
    told: list[int] = []

    async def send(message: dict[str, Any]) -> None:
        told.append(message.get("status", 0))

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
    assert told[0] == status
