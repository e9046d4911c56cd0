"""A body that is too large is answered, not stored and not cut off."""

from __future__ import annotations

import json
from typing import Any

from durableagents.limits import API_LIMIT, BodyLimit


async def _send(
    chunks: list[bytes], *, path: str = "/api/v1/runs", length: int | None = None
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """What the client gets, and what the application behind the limit got."""
    waiting = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    waiting.append({"type": "http.request", "body": b"", "more_body": False})
    got: list[bytes] = []
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        while (message := await receive()).get("more_body"):
            got.append(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    await BodyLimit(app)({"type": "http", "path": path, "headers": headers}, receive, send)
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
