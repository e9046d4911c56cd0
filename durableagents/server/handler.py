"""Run Django under ASGI, with each request in one thread from beginning to end."""

# Our middleware and views are synchronous. Django's own handler would switch threads some twenty times per request, and
# each switch waits in two queues under load. Here a request switches twice: into one of a few permanent threads (as
# many as there are admitted requests, see admission.py), and back. Request bodies are already complete (limits.py). A
# response is complete when it leaves the thread; for a download, only the file is ready by then.

from __future__ import annotations

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix
from django.utils.functional import SimpleLazyObject, empty

from durableagents.server import AFTERWARDS
from durableagents.server.admission import SLOTS
from durableagents.server.limits import Receive, Scope
from ledger import context
from ledger.web.downloads import FileInPieces


class Handler(ASGIHandler):
    """The HTTP handler that replaces `django.core.asgi.get_asgi_application()`."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(SLOTS, thread_name_prefix="request")
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(f"This handler answers HTTP, not {scope['type']}.")
        try:
            body = await _gathered(receive)
        except RequestAborted:
            return
        working = asyncio.get_running_loop().run_in_executor(
            self._threads, copy_context().run, self._answer, scope, body
        )
        try:
            response = await asyncio.shield(working)
        except asyncio.CancelledError:
            # A thread can't be cancelled, so the request must be counted until the thread has finished it.
            await asyncio.wait([working])
            raise
        if not isinstance(response, FileInPieces):
            await self.send_response(response, send)
        elif AFTERWARDS in scope:
            scope[AFTERWARDS](partial(self._send_file, response, send))
        else:
            await self._send_file(response, send)

    async def _send_file(self, response: FileInPieces, send: Any) -> None:
        try:
            await self.send_response(response, send)
        finally:
            response.release()

    def rehearse(self) -> None:
        """Answer an unauthorized dummy request, which loads and compiles what a process's first request needs."""
        headers = [
            (b"host", b"127.0.0.1"),
            (b"authorization", b"Bearer rehearsal"),
            (b"content-type", b"application/json"),
            (b"content-length", b"2"),
        ]
        self._answer(
            {
                "type": "http",
                "http_version": "1.1",
                "method": "POST",
                "scheme": "https",
                "path": "/api/v1/runs",
                "raw_path": b"/api/v1/runs",
                "query_string": b"",
                "root_path": "",
                "headers": headers,
                "client": ("127.0.0.1", 0),
                "server": ("127.0.0.1", 0),
            },
            b"{}",
        )

    def _answer(self, scope: Scope, body: bytes) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(scope))
        try:
            signals.request_started.send(sender=type(self), scope=scope)
            request, refusal = self.create_request(scope, io.BytesIO(body))
            response: Any = refusal if request is None else self.get_response(request)
            response._handler_class = type(self)
            if request is not None:
                _note_actor(request)
            is_whole = not response.streaming or isinstance(response, FileInPieces)
            answer: HttpResponseBase = response if is_whole else _whole(response)
        except BaseException:
            signals.request_finished.send(sender=type(self))
            raise
        response.close()  # ends the request and returns its connection to the pool
        return answer


def _note_actor(request: Any) -> None:
    """Record who sent the request, if the view has loaded the user. Loading the user here would cost another query."""
    current, user = context.request.get(), vars(request).get("user")
    is_unread = isinstance(user, SimpleLazyObject) and user._wrapped is empty
    if current is not None and not is_unread and getattr(user, "pk", None) is not None:
        current.actor = f"{'user' if getattr(request, 'auth', None) is None else 'key'}:{user.pk}"


async def _gathered(receive: Receive) -> bytes:
    """Return the body. Raises RequestAborted if the client left earlier."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAborted
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _whole(response: Any) -> HttpResponse:
    """Return a streaming response (small static files) as a complete response."""
    whole = HttpResponse(
        b"".join(response.streaming_content), status=response.status_code, reason=response.reason_phrase
    )
    whole.headers, whole.cookies = response.headers, response.cookies
    return whole
