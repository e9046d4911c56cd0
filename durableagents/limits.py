"""Bounds what a request may bring before Django spools it to disk: ASGI has no limit of its own."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from durableagents import problems

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

API_LIMIT = 1024 * 1024
PAGE_LIMIT = 2_621_440
# How much of a refused body is read and dropped, so that a client that is still sending sees the answer, not a reset.
_DRAINED = 32 * 1024 * 1024


class _TooLarge(Exception):
    """More came than is accepted here."""


class BodyLimit:
    """Answers 413 to a body that says it is too large, or turns out to be."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = API_LIMIT if scope["path"].startswith("/api/") else PAGE_LIMIT
        if _announced(scope) > limit:
            await _drain(receive)
            await _refuse(send, limit)
            return
        seen, has_answered = 0, False

        async def counted_receive() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _TooLarge
            return message

        async def watched_send(message: Message) -> None:
            nonlocal has_answered
            has_answered = True
            await send(message)

        try:
            await self._app(scope, counted_receive, watched_send)
        except _TooLarge:
            if not has_answered:
                await _drain(receive)
                await _refuse(send, limit)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _drain(receive: Receive) -> None:
    dropped = 0
    while dropped < _DRAINED:
        message = await receive()
        dropped += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return


async def _refuse(send: Send, limit: int) -> None:
    body = json.dumps(
        problems.document(413, "too-large", "Too large", f"The body is larger than {limit} bytes.")
    ).encode()
    headers = [
        (b"content-type", problems.CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
