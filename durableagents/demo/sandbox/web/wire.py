"""HTTP as the sandbox needs it: bounded bodies, answers byte for byte, and a connection that can be cut."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..effects import to_json
from .problems import Problem

LARGEST_BODY = 1 << 20
# A larger body is read to its end up to here, so that the client gets to see the 413 and not a reset connection.
LARGEST_DRAINED = 32 << 20


class BodyTooLarge(Problem):
    def __init__(self) -> None:
        super().__init__(413, f"the body is larger than {LARGEST_BODY} bytes", headers={"Connection": "close"})


class CuttableProtocol(HttpToolsProtocol):
    """Hands each request its connection's transport, in the state uvicorn gives every scope."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


class Cut(Response):
    """Close the connection and answer nothing.

    Waiting for the disconnect matters: an application that returns on an open connection without an answer is a 500 to
    uvicorn.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cast(asyncio.Transport, scope["state"]["transport"]).close()
        while (await receive())["type"] != "http.disconnect":
            pass


async def bounded_body(request: Request) -> bytes:
    """Raises BodyTooLarge."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_DRAINED:
            break
        if size <= LARGEST_BODY:
            parts.append(part)
    if size > LARGEST_BODY:
        raise BodyTooLarge
    return b"".join(parts)


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(value), status, headers, media_type="application/json")


def problem_answer(problem: Problem) -> Response:
    return Response(
        to_json(problem.as_json()),
        problem.status,
        problem.headers,
        media_type="application/problem+json",
    )
