"""Limit requests before Django sees them, because ASGI itself has no limits.

Bodies are gathered here, so a slow client costs a few kilobytes but no thread. Requests without key or session may
only have small bodies.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from django.conf import settings

from durableagents.server.health import ALIVE
from ledger.web import problems

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

API_LIMIT = 1024 * 1024
# The input of a run may have 64 MiB; the rest is room for the other fields of the body.
START_LIMIT = 65 * 1024 * 1024
PAGE_LIMIT = 2_621_440
ANONYMOUS_LIMIT = 64 * 1024
HEADER_LIMIT = 32 * 1024
# A body of the maximum size in this time means 35 KB/s. An announced large body gets four times as long, which means
# 550 KB/s.
BODY_SECONDS = 30.0
_LARGE_BODY_PATIENCE = 4
# Limits for all bodies being received. Large bodies must leave room for the others.
MAX_BYTES = 192 * 1024 * 1024
MAX_LARGE_BYTES = 2 * START_LIMIT
# How much of a refused body is still read, so that a client that is still sending sees the response instead of a
# connection reset.
_DRAINED = 16 * 1024 * 1024
_DRAIN_SECONDS = 5.0
_CALLBACKS = "/api/v1/callbacks/"
_STARTS = "/api/v1/runs"


class Refused(Exception):
    """The request is refused. `document` is the answer."""

    def __init__(self, status: int, code: str, title: str, detail: str) -> None:
        super().__init__(detail)
        self.document = problems.document(status, code, title, detail)


class Headers:
    """Answers invalid HTTP/1.1 with 400 and oversized headers with 431. Answers /healthz itself."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (wrong := _is_no_http(scope)) is not None:
            await answer(scope, send, problems.document(400, "malformed", "Malformed request", wrong))
        elif header_bytes(scope) > HEADER_LIMIT:
            too_large = f"The headers are larger than {_size(HEADER_LIMIT)}."
            problem = problems.document(431, "too-large", "The request's headers are too long", too_large)
            await answer(scope, send, problem)
        elif scope["path"] == "/healthz" and scope["method"] in ("GET", "HEAD"):
            # Answered by the event loop, which shows that the loop runs and needs no thread.
            await _say_alive(scope, send)
        else:
            await self._app(scope, receive, send)


def _is_no_http(scope: Scope) -> str | None:
    """Return what makes a request invalid HTTP, or None.

    Not every server checks for exactly one Host header (as RFC 9112 §3.2 demands), and Django would make one up.
    """
    version = scope.get("http_version", "1.1")
    if version == "0.9":
        return "HTTP/0.9 is not supported."
    names = [name for name, _ in scope["headers"]]
    if b"content-length" in names and b"transfer-encoding" in names:
        # If one server trusts the first header and the next server trusts the second, they see different requests (RFC
        # 9112 §6.1).
        return "The request has both Content-Length and Transfer-Encoding."
    if names.count(b"idempotency-key") > 1:
        return "The request has several Idempotency-Key headers; send one."
    hosts = names.count(b"host")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return f"The request has {hosts or 'no'} Host header{'s' if hosts > 1 else ''}."
    return None


def header_bytes(scope: Scope) -> int:
    """Return the size of the request line and all headers, as the client sent them."""
    lines = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return lines + len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))


def credentials(scope: Scope) -> bytes:
    """Return the key or session of a request, unverified; empty if it has none."""
    cookie = settings.SESSION_COOKIE_NAME.encode() + b"="
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value)
        if name == b"cookie" and cookie in value:
            return bytes(value.partition(cookie)[2].partition(b";")[0])
    return b""


class BodyLimit:
    """Answers 413 to oversized bodies, 408 to slow ones, and 503 if all bodies together are too large."""

    def __init__(self, app: Any, *, body_seconds: float = BODY_SECONDS, most_bytes: int = MAX_BYTES) -> None:
        self._app = app
        self._body_seconds, self._most = body_seconds, most_bytes
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held = _BodyShare(self)
        seconds = self._body_seconds * (_LARGE_BODY_PATIENCE if _announced(scope) > PAGE_LIMIT else 1)
        try:
            try:
                async with asyncio.timeout(seconds):
                    body = await self._gather(scope, receive, held)
            except TimeoutError:
                raise Refused(408, "too-slow", "Too slow", f"The body did not come within {seconds:.0f} s.") from None
            except Refused:
                await _drain(receive)
                raise
            if body is not None:
                await self._app(scope, _replay(body, receive), send)
        except Refused as refused:
            await answer(scope, send, refused.document)
        finally:
            held.drop()

    async def _gather(self, scope: Scope, receive: Receive, held: _BodyShare) -> bytes | None:
        """Return the whole body; None if the client left."""
        limit = limit_for(scope)
        if (announced := _announced(scope)) > limit:
            raise _too_large(limit, f"has {announced} bytes, but may have at most")
        parts: list[bytes] = []
        seen = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            seen += len(part)
            if seen > limit:
                raise _too_large(limit, "is larger than")
            held.add(len(part))
            if part:
                parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    def is_full(self, of_one: int) -> bool:
        """Return whether there is no memory left for a body of this size."""
        is_large = of_one > PAGE_LIMIT
        return self.held_bytes > (min(self._most, MAX_LARGE_BYTES) if is_large else self._most)


class _BodyShare:
    """The share of one request in the memory for bodies."""

    def __init__(self, limit: BodyLimit) -> None:
        self._limit, self._bytes = limit, 0

    def add(self, count: int) -> None:
        self._limit.held_bytes += count
        self._bytes += count
        if self._limit.is_full(self._bytes):
            raise Refused(
                503,
                "busy",
                "Busy",
                "Too many large bodies are being received. Nothing was done. Try again in a moment.",
            )

    def drop(self) -> None:
        self._limit.held_bytes -= self._bytes
        self._bytes = 0


def limit_for(scope: Scope) -> int:
    """Return the maximum body size for the path and sender of a request."""
    if scope["path"].startswith(_CALLBACKS):
        return int(settings.DURABLEAGENTS.callback_bytes)
    if not credentials(scope):
        return ANONYMOUS_LIMIT
    if scope["path"] == _STARTS:
        return START_LIMIT
    return API_LIMIT if scope["path"].startswith("/api/") else PAGE_LIMIT


def _too_large(limit: int, how: str) -> Refused:
    # Only the start of a run is meant to carry data.
    what = " Store large data elsewhere and send where." if limit == START_LIMIT else ""
    return Refused(413, "too-large", "Too large", f"The body {how} {_size(limit)}.{what}")


def _size(count: int) -> str:
    unit, name = (1024 * 1024, "MiB") if count >= 1024 * 1024 else (1024, "KiB")
    return f"{count / unit:g} {name}" if count * 10 % unit == 0 else f"{count} bytes"


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body once, then the connection's own messages, such as a disconnect."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


async def _drain(receive: Receive) -> None:
    dropped = 0
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while dropped < _DRAINED:
                message = await receive()
                dropped += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return  # the body comes too slowly to wait for it: the response is sent now


async def answer(scope: Scope, send: Send, document: dict[str, Any]) -> None:
    """Send a problem document (or an equivalent page to browsers) and close the connection."""
    if problems.is_for_programs(scope["path"]):
        document = problems.identified(document)
        body, own = json.dumps(document).encode(), [(b"content-type", problems.CONTENT_TYPE.encode())]
    else:
        body, own = _page(document["status"], document["title"], document["detail"]), _PAGE_HEADERS
    headers = [
        *own,
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    if document["status"] == 503:
        headers.append((b"retry-after", str(problems.RETRY_AFTER_SECONDS).encode()))
    await send({"type": "http.response.start", "status": document["status"], "headers": headers})
    await send({"type": "http.response.body", "body": body})


# The page is rendered once, so that refusing many requests doesn't cost the event loop a rendering each.
@lru_cache(maxsize=32)
def _page(status: int, title: str, detail: str) -> bytes:
    template = "503.html" if status == 503 else "errors/refused.html"
    return problems.page(template, {"status": status, "title": title, "detail": detail}).encode()


# Django's middleware sets these headers elsewhere, but is not reached for these responses.
_PAGE_HEADERS = [
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]


async def _say_alive(scope: Scope, send: Send) -> None:
    body = json.dumps(ALIVE).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
