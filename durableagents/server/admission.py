"""Limit concurrent requests to the pool's connections. Other requests wait briefly or are refused as *busy*."""

# More threads would not be faster (there is one interpreter), but would starve the event loop and with it `/healthz`.
# Lanes share the `SLOTS`. No lane can take all connections, so that people guessing keys don't block holders of keys,
# and those don't block callbacks or probes. Keys and sessions are verified behind this middleware, and the result is
# remembered for a while. Unknown credentials from an address that sent invalid ones use the anonymous lane for a while.
# Verified credentials don't, so an outdated key doesn't slow down other users at the same address.

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic
from typing import Any

from django.conf import settings

from durableagents.server import AFTERWARDS, AGAIN
from durableagents.server.limits import Message, Receive, Scope, Send, answer, credentials
from ledger.web import problems

SLOTS = 8
# If more requests waited, the last ones would give up before their turn.
MAX_WAITING = 256
DOUBTED_SECONDS = 20.0
PROVEN_SECONDS = 300.0
_MAX_REMEMBERED = 10_000
# These paths are answered without authentication, so their response proves nothing about a key or session.
_OPEN = ("/static/", "/login", "/healthz", "/readyz", "/api/v1/callbacks/")


@dataclass
class Lane:
    """Requests of one kind, with their concurrency and maximum wait."""

    slots: int
    patience_seconds: float
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Admission:
    """Admits requests by lane, in the order in which they came."""

    def __init__(self, app: Any, *, slots: int = SLOTS) -> None:
        self._app = app
        self._slots, self._running = slots, 0
        self.lanes = {
            "probe": Lane(1, 5.0),
            "known": Lane(slots - 1, 5.0),
            "callback": Lane(2, 5.0),
            "anonymous": Lane(2, 3.0),
            # internal requests for clients that wait or hold a stream (streams.py)
            "again": Lane(2, 10.0),
        }
        self._doubted = Remembered(DOUBTED_SECONDS)
        self._proven = Remembered(PROVEN_SECONDS)
        # The salt makes remembered digests useless to anybody else.
        self._salt = os.urandom(16)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        mark = self._mark(scope)
        lane = self.lanes[self._kind(scope, mark)]
        if not await self._enter(lane):
            await answer(scope, send, BUSY)
            return

        async def watched(message: Message) -> None:
            if mark and message["type"] == "http.response.start":
                if _is_unknown(message):
                    self._proven.forget(mark)
                    self._doubted.note(_address(scope).encode())
                elif 200 <= message["status"] < 300 and not scope["path"].startswith(_OPEN):
                    self._proven.note(mark)
            await send(message)

        afterwards: list[Callable[[], Awaitable[None]]] = []
        try:
            await self._app({**scope, AFTERWARDS: afterwards.append}, receive, watched)
        finally:
            self._leave(lane)
        for each in afterwards:  # runs without a slot, so a download by a slow client doesn't delay others
            await each()

    def _kind(self, scope: Scope, mark: bytes) -> str:
        if scope.get(AGAIN):
            return "again"
        if scope["path"] == "/readyz":
            return "probe"
        if scope["path"].startswith("/api/v1/callbacks/"):
            return "callback"
        is_known = mark and (self._proven.has(mark) or not self._doubted.has(_address(scope).encode()))
        return "known" if is_known else "anonymous"

    def _mark(self, scope: Scope) -> bytes:
        """Return a digest of a request's credentials; empty if it has none."""
        credential = credentials(scope)
        return blake2b(credential, key=self._salt, digest_size=16).digest() if credential else b""

    async def _enter(self, lane: Lane) -> bool:
        if not lane.waiting and self._has_room(lane):
            self._take(lane)
            return True
        if len(lane.waiting) >= MAX_WAITING:
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.waiting.append(turn)
        try:
            async with asyncio.timeout(lane.patience_seconds):
                await turn
        except TimeoutError:
            # If its turn came at the same moment, the request is admitted.
            return _has_come(turn)
        except BaseException:
            if _has_come(turn):
                self._leave(lane)
            raise
        finally:
            if not _has_come(turn):
                lane.waiting.remove(turn)
        return True

    def _has_room(self, lane: Lane) -> bool:
        return self._running < self._slots and lane.running < lane.slots

    def _take(self, lane: Lane) -> None:
        self._running += 1
        lane.running += 1

    def _leave(self, lane: Lane) -> None:
        self._running -= 1
        lane.running -= 1
        for each in self.lanes.values():
            while each.waiting and self._has_room(each):
                turn = each.waiting[0]
                if turn.done():  # this request gave up and is about to remove itself
                    break
                each.waiting.popleft()
                self._take(each)
                turn.set_result(None)


class Remembered:
    """Digests that expire. The number of entries is bounded: the oldest are dropped first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def note(self, mark: bytes) -> None:
        self._until[mark] = monotonic() + self._seconds
        self._until.move_to_end(mark)
        if len(self._until) > _MAX_REMEMBERED:
            self._until.popitem(last=False)

    def has(self, mark: bytes) -> bool:
        return self._until.get(mark, 0.0) > monotonic()

    def forget(self, mark: bytes) -> None:
        self._until.pop(mark, None)


def _has_come(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled()


BUSY = problems.busy()


def _address(scope: Scope) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


def _is_unknown(message: Message) -> bool:
    """Return whether a response says that the key or session is invalid."""
    if message["status"] == 401:
        return True
    location = next((value for name, value in message.get("headers", ()) if name.lower() == b"location"), b"")
    return message["status"] == 302 and location.startswith(settings.LOGIN_URL.encode())
