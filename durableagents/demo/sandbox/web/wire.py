"""HTTP helpers for the sandbox: bounded bodies, JSON answers, and connections that can be cut."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..effects import to_json


class Problem(Exception):
    """A request is refused. The exception contains the complete HTTP answer."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = headers or {}

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.field is not None:
            shown["field"] = self.field
        return shown


def wrong(field: str, detail: str) -> Problem:
    """Return Problem 422 about one invalid field."""
    return Problem(422, f"{field}: {detail}", field=field)


def malformed(detail: str) -> Problem:
    return Problem(400, detail)


def key_missing() -> Problem:
    return Problem(400, "this operation needs an Idempotency-Key header", field="Idempotency-Key")


def key_used_with_other_body() -> Problem:
    return Problem(422, "this Idempotency-Key was used with another body", field="Idempotency-Key")


def key_in_progress() -> Problem:
    detail = "a request under this Idempotency-Key is still in progress: ask again for its answer"
    return Problem(409, detail, field="Idempotency-Key", headers={"Retry-After": "1"})


def injected() -> Problem:
    return Problem(503, "injected error: nothing was done", headers={"Retry-After": "0"})


def refused() -> Problem:
    return Problem(403, "refused, as the fault says: nothing was done")


def store_unavailable() -> Problem:
    return Problem(503, "the sandbox's store can't be written: nothing was done", headers={"Retry-After": "1"})


LARGEST_BODY = 1 << 20
# A larger body is read to its end up to here, so that the client gets to see the 413 and not a reset connection.
LARGEST_DRAINED = 32 << 20


class BodyTooLarge(Problem):
    def __init__(self) -> None:
        super().__init__(413, f"the body is larger than {LARGEST_BODY} bytes", headers={"Connection": "close"})


class CuttableProtocol(HttpToolsProtocol):
    """Gives each request its connection's transport, in the scope's state."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


class Cut(Response):
    """Close the connection and answer nothing.

    It waits for the disconnect, because uvicorn would send a 500 if the application returned without an answer while
    the connection is open.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cast(asyncio.Transport, scope["state"]["transport"]).close()
        while (await receive())["type"] != "http.disconnect":
            pass


async def bounded_body(request: Request) -> bytes:
    """Return the body. Raises BodyTooLarge."""
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
