"""Run the web process on a listening socket, and hand the socket over without an outage."""

# Processes can share a listening socket. To restart, start the new process on the old one's socket; once it serves,
# send the old one SIGTERM. It then
#
# 1. accepts no more connections; they go to the new process, and none is refused, since the socket stays open;
# 2. closes its WebSockets with 1012 (*service restart*), after which pages reconnect;
# 3. answers requests in flight and on kept-alive connections, with `Connection: close`, so that nobody sends into a
#    closing connection;
# 4. ends when no connection is left, or at its deadline.
#
# SIGINT skips step 3: after such a stop no process serves.

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from types import FrameType
from typing import Any

import uvicorn

from durableagents.server.bounded_protocols import BoundedHttp, BoundedSocket
from durableagents.server.limits import HEADER_LIMIT, Message, Receive, Scope, Send

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 5
# Time from the signal until unanswered requests are cut off.
STOP_SECONDS = 2
# Our pages don't send anything over their sockets.
SOCKET_BYTES = 16 * 1024
# Time to notify the fleet and end threads. Both may hang on a stalled database, so the process waits only this long.
LAST_SECONDS = 5
_TICK_SECONDS = 0.05
_CLOCK_SECONDS = 1.0
log = logging.getLogger(__name__)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket that processes can share. Raises OSError."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def answers_ready(port: int) -> bool:
    """Return whether the installation on a local port is ready to work."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class LastAnswers:
    """Sends `Connection: close` with each response once `is_leaving` is set."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.is_leaving = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def parting(message: Message) -> None:
            if self.is_leaving and message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, parting if scope["type"] == "http" else send)


class Server(uvicorn.Server):
    """uvicorn's server with a callback when it is ready, and the shutdown order described at the top of this module."""

    def __init__(
        self,
        app: Any,
        *,
        patience_seconds: float,
        on_ready: Callable[[], None],
        on_leaving: Callable[[], None],
    ) -> None:
        self._answers = LastAnswers(app)
        self._patience_seconds, self._on_ready, self._on_leaving = patience_seconds, on_ready, on_leaving
        self._is_handing_over = False
        self._wake: Callable[[], object] = lambda: None  # during start-up there is nothing to wake up
        super().__init__(
            uvicorn.Config(
                self._answers,
                http=BoundedHttp,
                ws=BoundedSocket,
                h11_max_incomplete_event_size=HEADER_LIMIT,
                ws_max_size=SOCKET_BYTES,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                log_level="warning",
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
                backlog=BACKLOG,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again at the end. Otherwise a clean stop would look like a crash."""
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self.handle_exit)
        yield

    async def main_loop(self) -> None:
        """Wake up each second for the Date header, and at once on a signal. uvicorn itself polls ten times a second."""
        is_woken = asyncio.Event()
        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, is_woken.set)
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(is_woken.wait(), _CLOCK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Hand over on the first SIGTERM; stop at once on SIGINT or on a second signal."""
        self._is_handing_over = sig == signal.SIGTERM and not self.should_exit
        self.force_exit = self.should_exit
        self.should_exit = True
        self._wake()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._wake = lambda: None  # the loop may be closed when the next signal comes
        threading.Thread(
            target=_end_after,
            args=(self._patience_seconds * self._is_handing_over + STOP_SECONDS + LAST_SECONDS,),
            daemon=True,
        ).start()
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        if self._is_handing_over:
            await self._hand_over()
        await super().shutdown()

    async def _hand_over(self) -> None:
        """Answer the requests in progress. The first wait is for connections that were accepted but not yet read."""
        self._answers.is_leaving = True
        self._on_leaving()
        until = monotonic() + self._patience_seconds
        await asyncio.sleep(2 * _TICK_SECONDS)
        closing: set[Any] = set()
        while self.server_state.connections and monotonic() < until and self._is_handing_over:
            # Shut each socket down once: shut down twice, uvicorn cuts it off, and during a handshake it answers 500.
            sockets = {each for each in self.server_state.connections if getattr(each, "handshake_complete", False)}
            for connection in sockets - closing:
                connection.shutdown()
            closing |= sockets
            await asyncio.sleep(_TICK_SECONDS)


def _end_after(seconds: float) -> None:
    sleep(seconds)
    log.warning("something hangs that was to end; ended without it")
    logging.shutdown()
    os._exit(0)


def serve(listener: socket.socket, *, patience_seconds: float, ready_fd: int | None = None) -> int:
    """Serve on `listener` until stopped; write a line to `ready_fd` once serving. Return the exit code."""
    from durableagents.server.asgi import application, streams

    def say_ready() -> None:
        log.info("web process %s serves on port %s", os.getpid(), listener.getsockname()[1])
        if ready_fd is not None:
            os.write(ready_fd, b"ready\n")
            os.close(ready_fd)

    # Every connection needs a file descriptor, and systems begin with a low limit that may be raised.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = Server(application, patience_seconds=patience_seconds, on_ready=say_ready, on_leaving=streams.leave)
    server.run(sockets=[listener])
    return 0
