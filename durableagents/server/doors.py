"""uvicorn's protocols with bounds on connections and time, against slow or greedy clients. The h11 protocol refuses
what isn't HTTP/1."""

# - Limits of connections in all and per address. At the limit, the oldest without a complete request is closed. Trusted
#   proxies count only in all.
# - `HEAD_SECONDS` for a request's headers, from the first byte (for a new connection from its start), and for a
#   WebSocket's handshake.
# - `STALL_SECONDS` for clients that don't read, or keep sending an unwanted body.

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from durableagents.server import proxies

HEAD_SECONDS = 10.0
STALL_SECONDS = 20.0
_log = logging.getLogger("durableagents.server.doors")


@dataclass
class Doorkeeper:
    """Counts the connections of a process."""

    most: int
    most_per_address: int
    head_seconds: float = HEAD_SECONDS
    stall_seconds: float = STALL_SECONDS
    _address_of: dict[Any, str] = field(default_factory=dict)
    _per_address: Counter[str] = field(default_factory=Counter)
    # In order of arrival.
    _waiting: dict[Any, None] = field(default_factory=dict)

    def enter(self, transport: Any) -> bool:
        """Return whether a new connection may stay."""
        name = transport.get_extra_info("peername")
        address = str(name[0]) if isinstance(name, tuple) else ""
        is_alone = bool(address) and not proxies.is_trusted(address)
        if is_alone and self._per_address[address] >= self.most_per_address:
            return False
        if len(self._address_of) >= self.most:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.abort()
        self._address_of[transport] = address
        self._per_address[address] += 1
        self._waiting[transport] = None
        return True

    def is_heard(self, transport: Any) -> None:
        """Note that its request has arrived."""
        self._waiting.pop(transport, None)

    def leave(self, transport: Any) -> None:
        """Forget a closed connection."""
        address = self._address_of.pop(transport, None)
        self._waiting.pop(transport, None)
        if address is not None:
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]

    def __len__(self) -> int:
        return len(self._address_of)


def protocols(keeper: Doorkeeper) -> tuple[type[H11Protocol], type[WebSocketsSansIOProtocol]]:
    """Return the server's protocol classes under one doorkeeper."""
    return type("Http", (BoundedHttp,), {"keeper": keeper}), type("Socket", (BoundedSocket,), {"keeper": keeper})


class _Bounded(asyncio.Protocol):
    """Base of both protocols: aborts clients that don't read, and uncounts closed ones."""

    keeper: Doorkeeper
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _stall: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(self.keeper.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall()

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_stall()
        self.keeper.leave(self.transport)
        super().connection_lost(exc)


class BoundedHttp(_Bounded, H11Protocol):
    """uvicorn's HTTP protocol with timeouts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A line per bad request would let anybody fill the disk; the application's errors are still logged.
        self.logger = _log
        self._is_refused = False
        self._clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.keeper.enter(transport):
            self._turn_away(_plain(503, b"Service Unavailable", b"Too many connections.", b"Retry-After: 2\r\n"))
            return
        self._start_clock(self.keeper.head_seconds)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self.conn.their_state is h11.IDLE and _is_ambiguous(self.conn.trailing_data[0] + data):
            self._turn_away(
                _plain(400, b"Bad Request", b"Lines of a header end in CR LF, and don't go on in the next.")
            )
            return
        super().data_received(data)
        self._check()

    def _turn_away(self, answer: bytes) -> None:
        """Send the last response and ignore further data."""
        self._is_refused = True
        self.transport.write(answer)
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._check()

    def _check(self) -> None:
        """Set the timeout: for headers in progress or an unread body, else none."""
        if self.transport.get_protocol() is not self or self.transport.is_closing():
            self._stop_clock()
            return
        theirs = self.conn.their_state
        if theirs is not h11.IDLE:
            self.keeper.is_heard(self.transport)
        has_begun_again = theirs is h11.IDLE and (self.cycle is None or bool(self.conn.trailing_data[0]))
        is_unread = theirs is h11.SEND_BODY and self.conn.our_state in (h11.DONE, h11.MUST_CLOSE)
        if not (has_begun_again or is_unread):
            self._stop_clock()
        elif self._clock is None:
            self._start_clock(self.keeper.head_seconds)

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
        """Refuse by h11's error: 431 for endless headers, 400 for invalid HTTP."""
        error = sys.exc_info()[1]
        status = getattr(error, "error_status_hint", 400)
        if status == 431 and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_plain(431, b"Request Header Fields Too Large", b"The headers are too large."))
            self.transport.close()
        elif self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # within or after a response: nobody can be told
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
        self.keeper.is_heard(transport)
        self._clock = self.loop.call_later(self.keeper.head_seconds, self._open_or_gone)

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


def _plain(status: int, phrase: bytes, text: bytes, more: bytes = b"") -> bytes:
    """Return a plain response to an invalid request."""
    return b"".join(
        [
            b"HTTP/1.1 %d %s\r\n" % (status, phrase),
            b"Content-Type: text/plain; charset=utf-8\r\n",
            b"Content-Length: %d\r\n" % len(text),
            more,
            b"Connection: close\r\n\r\n",
            text,
        ]
    )
