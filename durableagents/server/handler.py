"""Django under ASGI, with each request in one thread from beginning to end.

All of our middleware and views are written for threads. Django's own handler calls them one by one from the event loop:
a request of ours would change threads some twenty times, in a thread that is started for it and ends with it, and under
load each change is a turn in two queues. Here it changes twice: into one of a few lasting threads, as many as requests
are let in at a time (admission.py), and back.

What comes has been gathered (limits.py), so there is nothing to wait for in the thread but the database. An answer is
whole when it leaves the thread, and the request's connection is back in the pool.
"""

from __future__ import annotations

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from durableagents.server.admission import SLOTS
from durableagents.server.limits import Receive, Scope


class Handler(ASGIHandler):
    """Answers HTTP. Takes the place of `django.core.asgi.get_asgi_application()`."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(SLOTS, thread_name_prefix="request")
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(f"This handler answers HTTP, and not {scope['type']}.")
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
            # A thread can't be cut off. Whoever counts requests must count this one until it has ended.
            await asyncio.wait([working])
            raise
        await self.send_response(response, send)

    def rehearse(self) -> None:
        """Answer a request that nobody sent, one without a right to anything: what the first of a process loads and
        compiles is then there."""
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
            answer: HttpResponseBase = _whole(response) if response.streaming else response
        except BaseException:
            signals.request_finished.send(sender=type(self))
            raise
        response.close()  # which says that the request has ended: its connection goes back
        return answer


async def _gathered(receive: Receive) -> bytes:
    """The body. Raises RequestAborted when the client went away before it was there."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAborted
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _whole(response: Any) -> HttpResponse:
    """A file that was to be read piece by piece (style sheets and the like, all small), read."""
    whole = HttpResponse(
        b"".join(response.streaming_content), status=response.status_code, reason=response.reason_phrase
    )
    whole.headers, whole.cookies = response.headers, response.cookies
    return whole
