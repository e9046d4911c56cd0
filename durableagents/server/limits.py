"""What a request may bring before Django sees it, and how long it may take to bring it. ASGI has no limit of its own.

A body is gathered here, whole: so a client that sends slowly holds a few kilobytes and no thread, and a thread gets a
body that is there. Without a key or a session there is nothing large to send.
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

API_LIMIT = 1024 * 1024
PAGE_LIMIT = 2_621_440
ANONYMOUS_LIMIT = 64 * 1024
HEADER_LIMIT = 32 * 1024
# A body of full size in this time is 35 KB/s.
BODY_SECONDS = 30.0
# Of all bodies that are gathered or worked on at a time.
MOST_BYTES = 64 * 1024 * 1024
# How much of a refused body is read and dropped, so that a client that is still sending sees the answer, not a reset.
_DRAINED = 16 * 1024 * 1024
_DRAIN_SECONDS = 5.0
_CALLBACKS = "/api/v1/callbacks/"


class Refused(Exception):
    """What came isn't taken; `answer` is what to say."""

    def __init__(self, status: int, code: str, title: str, detail: str) -> None:
        super().__init__(detail)
        self.document = problems.document(status, code, title, detail)


class Headers:
    """Answers 400 to what is no request of HTTP/1.1, 431 to headers that are too large as a whole, and tells at once
    that this process lives."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (wrong := _is_no_http(scope)) is not None:
            await answer(scope, send, problems.document(400, "malformed", "Malformed request", wrong))
        elif header_bytes(scope) > HEADER_LIMIT:
            too_large = f"The headers are larger than {_size(HEADER_LIMIT)}."
            await answer(scope, send, problems.document(431, "too-large", "Too large", too_large))
        elif scope["path"] == "/healthz" and scope["method"] in ("GET", "HEAD"):
            # From the loop itself: it says that the loop turns, and needs no thread that others could keep busy.
            await _say_alive(scope, send)
        else:
            await self._app(scope, receive, send)


def _is_no_http(scope: Scope) -> str | None:
    """What is wrong. Not every server looks (RFC 9112 §3.2 demands one Host), and Django makes one up from its own
    address."""
    version = scope.get("http_version", "1.1")
    if version == "0.9":
        return "HTTP/0.9 is not spoken here."
    names = [name for name, _ in scope["headers"]]
    if b"content-length" in names and b"transfer-encoding" in names:
        # Two servers that believe one each see two different requests (RFC 9112 §6.1).
        return "The request has both Content-Length and Transfer-Encoding."
    hosts = names.count(b"host")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return f"The request has {hosts or 'no'} Host header{'s' if hosts > 1 else ''}."
    return None


def header_bytes(scope: Scope) -> int:
    """Of the request line and all header lines, as they came."""
    lines = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return lines + len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))


def credentials(scope: Scope) -> bytes:
    """What a request shows to say who sends it, true or not: its key or its session. Empty if it shows nothing."""
    cookie = settings.SESSION_COOKIE_NAME.encode() + b"="
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value)
        if name == b"cookie" and cookie in value:
            return bytes(value.partition(cookie)[2].partition(b";")[0])
    return b""


class BodyLimit:
    """Answers 413 to a body that says it is too large or turns out to be, 408 to one that doesn't come, 503 when all
    together are too much."""

    def __init__(self, app: Any, *, body_seconds: float = BODY_SECONDS, most_bytes: int = MOST_BYTES) -> None:
        self._app = app
        self._body_seconds, self._most = body_seconds, most_bytes
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held = _Held(self)
        try:
            try:
                async with asyncio.timeout(self._body_seconds):
                    body = await self._gather(scope, receive, held)
            except TimeoutError:
                raise Refused(
                    408, "too-slow", "Too slow", f"The body did not come within {self._body_seconds:.0f} s."
                ) from None
            except Refused:
                await _drain(receive)
                raise
            if body is not None:
                await self._app(scope, _replay(body, receive), send)
        except Refused as refused:
            await answer(scope, send, refused.document)
        finally:
            held.drop()

    async def _gather(self, scope: Scope, receive: Receive, held: _Held) -> bytes | None:
        """The whole body; None when the client went away."""
        limit = limit_for(scope)
        if _announced(scope) > limit:
            raise _too_large(limit)
        parts: list[bytes] = []
        seen = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            seen += len(part)
            if seen > limit:
                raise _too_large(limit)
            held.add(len(part))
            if part:
                parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    @property
    def is_full(self) -> bool:
        return self.held_bytes > self._most


class _Held:
    """One request's part of what all bodies take."""

    def __init__(self, limit: BodyLimit) -> None:
        self._limit, self._bytes = limit, 0

    def add(self, count: int) -> None:
        self._limit.held_bytes += count
        self._bytes += count
        if self._limit.is_full:
            raise Refused(
                503, "busy", "Busy", "Too many large bodies are on their way. Nothing was done; try again in a moment."
            )

    def drop(self) -> None:
        self._limit.held_bytes -= self._bytes
        self._bytes = 0


def limit_for(scope: Scope) -> int:
    """How large a body may be here, from whoever sends it."""
    if scope["path"].startswith(_CALLBACKS):
        return int(settings.DURABLEAGENTS.callback_bytes)
    if not credentials(scope):
        return ANONYMOUS_LIMIT
    return API_LIMIT if scope["path"].startswith("/api/") else PAGE_LIMIT


def _too_large(limit: int) -> Refused:
    return Refused(413, "too-large", "Too large", f"The body is larger than {_size(limit)}.")


def _size(count: int) -> str:
    """A number of bytes as people say it."""
    unit, name = (1024 * 1024, "MiB") if count >= 1024 * 1024 else (1024, "KiB")
    return f"{count / unit:g} {name}" if count * 10 % unit == 0 else f"{count} bytes"


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once, then what the connection tells: that the client went away, for one."""
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
        return  # it sends too slowly to be waited for; it gets its answer now


async def answer(scope: Scope, send: Send, document: dict[str, Any]) -> None:
    """A problem document, or to people a page that says the same; then the connection ends."""
    if problems.is_for_programs(scope["path"]):
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


# Drawn once: a crowd that is turned away must not cost the loop a template each.
@lru_cache(maxsize=32)
def _page(status: int, title: str, detail: str) -> bytes:
    template = "503.html" if status == 503 else "errors/refused.html"
    return problems.page(template, {"status": status, "title": title, "detail": detail}).encode()


# Django's middleware, which has these for every other page, is not reached.
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
