"""uvicorn's protocols with time limits, against clients that send or read slowly.

The h11 protocol refuses everything that is not HTTP/1. The number of connections per address is limited by the proxy in
front (deploy/nginx).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

# limit for the headers, from the first byte (for a new connection from its start), and for a handshake
HEAD_SECONDS = 10.0
STALL_SECONDS = 20.0  # limit for clients that don't read, or keep sending a body that nobody reads
_log = logging.getLogger("durableagents.server.bounded_protocols")


class _Bounded(asyncio.Protocol):
    """Base of both protocols. Aborts connections of clients that don't read."""

    stall_seconds = STALL_SECONDS
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _stall: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall()

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_stall()
        super().connection_lost(exc)


class BoundedHttp(_Bounded, H11Protocol):
    """uvicorn's HTTP protocol with timeouts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A log line per bad request would let anybody fill the disk. Errors of the application are still logged.
        self.logger = _log
        self._is_refused = False
        self._clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self.conn.their_state is h11.IDLE and _is_ambiguous(self.conn.trailing_data[0] + data):
            self._is_refused = True
            text = b"Lines of a header end in CR LF, and don't go on in the next."
            self.transport.write(_plain(400, b"Bad Request", text))
            self.transport.close()
            return
        super().data_received(data)
        self._check()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._check()

    def _check(self) -> None:
        """Set the timeout for the current state: for incomplete headers or an unread body, else none."""
        if self.transport.get_protocol() is not self or self.transport.is_closing():
            self._stop_clock()
            return
        theirs = self.conn.their_state
        has_begun_again = theirs is h11.IDLE and (self.cycle is None or bool(self.conn.trailing_data[0]))
        is_unread = theirs is h11.SEND_BODY and self.conn.our_state in (h11.DONE, h11.MUST_CLOSE)
        if not (has_begun_again or is_unread):
            self._stop_clock()
        elif self._clock is None:
            self._start_clock(HEAD_SECONDS)

    def _start_clock(self, seconds: float) -> None:
        self._clock = self.loop.call_later(seconds, self._too_slow)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _too_slow(self) -> None:
        self._clock = None
        if not self.transport.is_closing() and self.conn.our_state is h11.IDLE:
            self.transport.write(_plain(408, b"Request Timeout", b"The request did not come in time."))
            self.transport.close()
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that h11 rejected: 431 for endless headers, 400 for invalid HTTP."""
        error = sys.exc_info()[1]
        status = getattr(error, "error_status_hint", 400)
        if status == 431 and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_plain(431, b"Request Header Fields Too Large", b"The headers are too large."))
            self.transport.close()
        elif self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # during or after a response it is too late for another one
            self.transport.abort()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._stop_clock()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)


class BoundedSocket(_Bounded, WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with a handshake timeout."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._clock = self.loop.call_later(HEAD_SECONDS, self._open_or_gone)

    def _open_or_gone(self) -> None:
        if not self.handshake_complete:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clock.cancel()
        super().connection_lost(exc)


def _is_ambiguous(begun: bytes) -> bool:
    """Return whether a head has line ends that h11 accepts and proxies may not (RFC 9112 §2.2 and §5.2)."""
    head = begun.partition(b"\r\n\r\n")[0]
    return b"\n" in head.replace(b"\r\n", b"") or b"\r\n " in head or b"\r\n\t" in head


def _plain(status: int, phrase: bytes, text: bytes) -> bytes:
    """Return a plain response to an invalid request."""
    return b"".join(
        [
            b"HTTP/1.1 %d %s\r\n" % (status, phrase),
            b"Content-Type: text/plain; charset=utf-8\r\n",
            b"Content-Length: %d\r\n" % len(text),
            b"Connection: close\r\n\r\n",
            text,
        ]
    )
