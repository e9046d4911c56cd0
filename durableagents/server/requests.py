"""Give each request an id, a trace context and a log line."""

from __future__ import annotations

import logging
import secrets
import time
from urllib.parse import quote

from durableagents.logs import without_secrets
from durableagents.server.limits import App, Message, Receive, Scope, Send
from ledger import context, observers
from ledger.observers import Answered

log = logging.getLogger("durableagents.web")

MAX_PATH = 300
_QUIET = ("/healthz", "/readyz", "/static/")
_CLIENT_LEFT = 499  # nginx's status for a client that left before the response


class Requests:
    """Gives each request an id, which appears in its response and log lines, and continues the caller's trace."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _request_of(scope)
        header = (b"x-request-id", request.id.encode())
        status, began, began_at = _CLIENT_LEFT, time.perf_counter(), time.time_ns()

        async def identified(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        token = context.request.set(request)
        try:
            await self._app(scope, receive, identified)
        finally:
            path = without_secrets(quote(scope["path"], errors="replace"))[:MAX_PATH]
            level = logging.DEBUG if scope["path"].startswith(_QUIET) else logging.INFO
            milliseconds = round((time.perf_counter() - began) * 1000, 1)
            entry = {
                "method": scope["method"],
                "path": path,
                "status": status,
                "ms": milliseconds,
                "actor": request.actor,
            }
            log.log(level, "%(method)s %(path)s %(status)s %(ms)s ms %(actor)s", entry, extra={"fields": entry})
            if level == logging.INFO and Answered in observers.installed:
                observers.tell(Answered(request, scope["method"], path, status, began_at, time.time_ns()))
            context.request.reset(token)


def _request_of(scope: Scope) -> context.Request:
    given: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        if name in (b"x-request-id", b"traceparent"):
            given.setdefault(name, []).append(value.decode("latin-1"))
    # If the header was sent twice, both are ignored.
    ids, parents = ([*given.get(name, ()), ""] for name in (b"x-request-id", b"traceparent"))
    request_id = context.chosen_request_id(ids[0] if len(ids) == 2 else None)
    trace_id, parent = context.parent_of(parents[0] if len(parents) == 2 else None)
    if Answered in observers.installed:
        return context.Request(request_id, trace_id or secrets.token_hex(16), secrets.token_hex(8), parent)
    return context.Request(request_id, trace_id)
