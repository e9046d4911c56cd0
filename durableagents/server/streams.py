"""Long polls and server-sent events.

Clients wait on the event loop, without a thread or a database connection. Each response comes from the views, which are
called again with the client's own request, so it is authorized again. `wait=` of a run is answered at its next revision
or end. `Accept: text/event-stream` turns a run's `events` and `live` into streams. A stream ends with `event: end` and
a reason.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from django.db import connection
from django.http import HttpRequest
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.settings import api_settings

from durableagents.server import AGAIN
from durableagents.server.limits import Message, Receive, Scope, Send, answer, credentials
from ledger.web import problems
from ledger.web.roles import roles
from ledger.web.seeing.viewers import viewer_of
from runs.api.revisions import WAITS_FOR, revision_of
from runs.background import run_forever
from runs.console import socket_watch
from runs.console.socket_watch import NOT_ALLOWED, SIGNED_OUT, Guard, Verdict, in_thread
from runs.console.sockets import ears
from runs.journal.database_errors import is_transient
from runs.journal.notify import Subscription, hub, parse

HEARTBEAT_SECONDS = 15.0
# Changed runs are read in one query, at most this often. All watched runs are read from time to time, because
# notifications may be lost.
LOOK_SECONDS = 0.25
LOOK_AT_ALL_SECONDS = 10.0
# A stream of a busy run reads its events at most this often.
READ_SECONDS = 0.5
MAX_STREAMS, MAX_STREAMS_PER_KEY = 500, 50
# Limit of concurrent internal requests for waiting clients. Further ones wait here, so that they don't crowd out new
# requests.
AT_ONCE = 2
PAGE = 100
_PATH = re.compile(r"/api/v1/runs/([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})(?:/(events|live))?")
_SEQ = re.compile(rb"[0-9]{1,18}")


# --- what waiting clients are told of -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """The position of a run in its journal."""

    revision: str
    seq: int
    is_over: bool
    is_erased: bool


_LOOK = """
    SELECT r.id, r.updated_at, h.seq, r.ended_at IS NOT NULL, r.erased_at IS NOT NULL
    FROM runs_run r JOIN ledger_head h ON h.run_id = r.id WHERE r.id = ANY(%s)"""


def look(run_ids: Iterable[str]) -> dict[str, JournalPosition]:
    with connection.cursor() as cursor:
        cursor.execute(_LOOK, [[UUID(run_id) for run_id in run_ids]])
        return {str(row[0]): JournalPosition(revision_of(row[1]), *row[2:]) for row in cursor.fetchall()}


class Watcher:
    """The run that one client watches.

    `now` is None until the run has been read, and for a run that no longer exists.
    """

    def __init__(self) -> None:
        self.now: JournalPosition | None = None
        self.moved = asyncio.Event()

    def tell(self, now: JournalPosition | None) -> None:
        if now != self.now or now is None:
            self.now = now
            self.moved.set()


class Rings(Subscription):
    """Collects the watched runs that have been notified about, each once."""

    def __init__(self, watched: Collection[str]) -> None:
        super().__init__(None)
        self._watched = watched
        self._due: set[str] = set()

    def hear(self, payload: str) -> None:
        self.add(run_id for run_id, _ in parse(payload))

    def add(self, run_ids: Iterable[str]) -> None:
        self._due.update(run_id for run_id in run_ids if run_id in self._watched)
        if self._due:
            self._filled.set()

    def reread(self) -> None:
        self.add(list(self._watched))

    async def take(self) -> set[str]:
        """Wait for notifications and return their runs; without any for `LOOK_AT_ALL_SECONDS`, return all runs."""
        try:
            async with asyncio.timeout(LOOK_AT_ALL_SECONDS):
                await self._filled.wait()
        except TimeoutError:
            return set(self._watched)
        self._filled.clear()
        due, self._due = self._due, set()
        return due & set(self._watched)


class Watch:
    """Watches runs for all clients of this process, with one subscription and one query."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[Watcher]] = {}
        self._rings = Rings(self._watchers)
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def open(self, run_id: str) -> AsyncIterator[Watcher]:
        """Watch a run. Each run is read once at the beginning, so nothing is missed."""
        watcher = Watcher()
        self._watchers.setdefault(run_id, set()).add(watcher)
        self._rings.add([run_id])
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(run_forever("the watch of waiting clients", self._run), name="streams")
        try:
            yield watcher
        finally:
            self._watchers[run_id].discard(watcher)
            if not self._watchers[run_id]:
                del self._watchers[run_id]
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        async with hub.hearing(self._rings) as rings:
            while True:
                due = await rings.take()
                try:
                    found = await in_thread(look, due)
                except Exception as error:
                    if not is_transient(error):
                        raise
                    rings.add(due)  # retry until the database is back
                    found = {}
                    due = set()
                for run_id in due:
                    for watcher in list(self._watchers.get(run_id, ())):
                        watcher.tell(found.get(run_id))
                await asyncio.sleep(LOOK_SECONDS)


watch = Watch()


# --- whether a stream may stay open ---------------------------------------------------------------------------------


def verdicts(keys: Iterable[str | None]) -> dict[str | None, Verdict]:
    """Return, for each sender of a stream, whether it may continue. A sender is `Bearer <key>`, or else a session."""
    keys = list(keys)
    found: dict[str | None, Verdict] = {}
    for key in keys:
        if key is not None and key.lower().startswith("bearer "):
            found[key] = _of_key(key)
    sessions = [key for key in keys if key not in found]
    return found | (socket_watch.verdicts(sessions) if sessions else {})


def _of_key(authorization: str) -> Verdict:
    http_request = HttpRequest()
    http_request.META["HTTP_AUTHORIZATION"] = authorization
    kinds: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES
    try:
        user = Request(http_request, authenticators=[kind() for kind in kinds]).user
    except AuthenticationFailed:
        return SIGNED_OUT
    return viewer_of(user) if roles(user) else NOT_ALLOWED


guard = Guard(verdicts)
_REASONS = {SIGNED_OUT: "signed-out", NOT_ALLOWED: "forbidden"}


def _sender(scope: Scope) -> str | None:
    """Return who sends a request, in the form that `verdicts` expects."""
    credential = credentials(scope)
    return credential.decode("latin-1") or None if b"\x00" not in credential else None


# --- requests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of a view."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> str:
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), "")

    async def relay(self, send: Send) -> None:
        headers = [pair for pair in self.headers if pair[0].lower() != WAITS_FOR.lower().encode()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class Streams:
    """Keeps waiting clients out of `app`, and sends requests to it on their behalf."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._streams: Counter[str] = Counter()
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """End all waits and streams, because the server stops. Clients then reconnect to another process."""
        self._leaving.set()

    async def left(self) -> None:
        """Wait until the server stops. Raises _Ended."""
        await self._leaving.wait()
        raise _Ended("server-stops")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _PATH.fullmatch(scope["path"]) if scope["method"] == "GET" else None
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        if match and match[2] and _takes_stream(scope):
            await self._stream(scope, receive, send, str(UUID(match[1])), match[2], query)
        elif match and not match[2] and query.get("wait"):
            await self._wait(scope, receive, send, str(UUID(match[1])), query)
        else:
            await self._app(scope, receive, send)

    async def _ask(self, scope: Scope, query: str, *, is_again: bool = True) -> Answer:
        """Return the views' response to this request when sent with another query string."""
        headers: list[tuple[bytes, bytes]] = []
        status, body = 500, b""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def keep(message: Message) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.extend(message.get("headers", ()))
            else:
                body += message.get("body", b"")

        fields = {**scope, "query_string": query.encode("latin-1"), AGAIN: is_again}
        if is_again:
            async with self._asking:
                await self._app(fields, receive, keep)
        else:
            await self._app(fields, receive, keep)
        return Answer(status, headers, body)

    # --- long polls ---

    async def _wait(self, scope: Scope, receive: Receive, send: Send, run_id: str, query: dict[str, str]) -> None:
        """Answer at the run's next revision, at its end, or at the timeout."""
        text = scope.get("query_string", b"").decode("latin-1")
        first = await self._ask(scope, text, is_again=False)
        known = first.header(WAITS_FOR.lower().encode())
        if not known:
            return await first.relay(send)
        ends = asyncio.get_running_loop().time() + int(query["wait"])
        async with watch.open(run_id) as watcher, _leaving(receive) as gone:
            while watcher.now is None or watcher.now.revision == known:
                left = ends - asyncio.get_running_loop().time()
                if left <= 0 or not await self._until(watcher.moved, gone, left):
                    break
                if watcher.now is None:
                    break  # the run was removed meanwhile
            if gone.done():
                return
            # Sent with `wait=0`, so that the view doesn't ask to wait again. The request is authorized again.
            last = await self._ask(scope, urlencode({**query, "wait": "0"}))
        await last.relay(send)

    async def _until(self, moved: asyncio.Event, gone: asyncio.Task[None], seconds: float) -> bool:
        """Wait for `moved`. Return False if the client left, the server stops, or the timeout has passed."""
        waits = [asyncio.create_task(moved.wait()), asyncio.create_task(self._leaving.wait())]
        try:
            await asyncio.wait([*waits, gone], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() or self._leaving.is_set() or not moved.is_set():
                return False
            moved.clear()
            return True
        finally:
            for each in waits:
                each.cancel()

    # --- server-sent events ---

    async def _stream(
        self, scope: Scope, receive: Receive, send: Send, run_id: str, what: str, query: dict[str, str]
    ) -> None:
        sender = _sender(scope)
        held = _key_mark(sender)
        if (refusal := self._too_many(held)) is not None:
            return await answer(scope, send, refusal)
        self._streams[held] += 1
        try:
            last = _last_event_id(scope)
            if last is not None and not _SEQ.fullmatch(last):
                return await answer(scope, send, _NO_SEQ)
            if "limit" in query:
                return await answer(scope, send, _NO_LIMIT)
            if what == "events":
                query = {"limit": str(PAGE)} | query | ({"after": last.decode()} if last else {})
            await _Stream(self, scope, receive, send, run_id, sender).run(what, query)
        finally:
            self._streams[held] -= 1
            if not self._streams[held]:
                del self._streams[held]

    def _too_many(self, held: str) -> dict[str, Any] | None:
        if self._streams.total() >= MAX_STREAMS:
            return problems.document(
                503,
                "busy",
                "Busy",
                f"Limit reached: this process has {MAX_STREAMS} open streams. Try again in a moment.",
            )
        if self._streams[held] >= MAX_STREAMS_PER_KEY:
            fix = "Close one first. To wait for the end of a run, use `wait=` instead of a stream."
            return problems.document(
                429, "too-many-streams", "Too many streams", f"Limit reached: {MAX_STREAMS_PER_KEY} per key. {fix}"
            )
        return None


_NO_SEQ = problems.document(
    400, "malformed", "Malformed request", "Last-Event-ID must be the number of an event, as the stream sent it."
)
_NO_LIMIT = problems.document(
    400, "malformed", "Malformed request", "A stream has no pages: leave out 'limit'. It starts behind 'after'."
)


def _beyond(last: int) -> dict[str, Any]:
    return problems.document(
        400,
        "malformed",
        "Malformed request",
        f"The run's last event is {last}: start after that event or an earlier one.",
    )


class _Ended(Exception):
    """The stream ends. The client receives the reason."""


class _Stream:
    """One open stream."""

    def __init__(
        self, streams: Streams, scope: Scope, receive: Receive, send: Send, run_id: str, sender: str | None
    ) -> None:
        self._streams, self._scope, self._receive, self._send = streams, scope, receive, send
        self._run_id, self._sender = run_id, sender

    async def run(self, what: str, query: dict[str, str]) -> None:
        first = await self._streams._ask(self._scope, urlencode(query), is_again=False)
        if first.status != 200:
            return await first.relay(self._send)
        who = await guard.verdict(self._sender)
        async with watch.open(self._run_id) as watcher, _leaving(self._receive) as gone:
            if not await self._streams._until(watcher.moved, gone, HEARTBEAT_SECONDS) and gone.done():
                return
            page = json.loads(first.body)
            if what == "events" and not page["results"] and watcher.now is not None and watcher.now.is_over:
                # There will be no more events. Browsers stop reconnecting at this status.
                return await Answer(204, [(b"cache-control", b"no-store")], b"").relay(self._send)
            if what == "events" and watcher.now is not None and int(query.get("after") or 0) > watcher.now.seq:
                return await answer(self._scope, self._send, _beyond(watcher.now.seq))
            await self._begin()
            pump = self._events(page, query, watcher) if what == "events" else self._live(watcher)
            parts: list[Any] = [pump, self._guarded(who), self._streams.left()]
            ends = [gone, *map(asyncio.create_task, parts)]
            try:
                done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in ends:
                    each.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
            if gone not in done:
                await self._end(_reason(done))

    async def _guarded(self, who: Verdict) -> None:
        """End the stream when its key or session loses access. Raises _Ended."""
        code = who if isinstance(who, int) else await guard.ended(self._sender, who)
        raise _Ended(_REASONS.get(code, "access-changed"))

    async def _begin(self) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._write(f"retry: {int(READ_SECONDS * 4000)}\n\n")

    async def _write(self, text: str) -> None:
        await self._send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    async def _end(self, reason: str) -> None:
        await self._write(f"event: end\ndata: {json.dumps({'reason': reason})}\n\n")
        await self._send({"type": "http.response.body", "body": b""})

    async def _events(self, page: dict[str, Any], query: dict[str, str], watcher: Watcher) -> None:
        """Send events as they are recorded."""
        last = int(query.get("after") or 0)
        while True:
            for row in page["results"]:
                last = row["seq"]
                await self._write(f"id: {last}\ndata: {json.dumps(row)}\n\n")
            if not page["next"]:
                await self._until_after(last, watcher)
                await asyncio.sleep(READ_SECONDS)
            page = await self._page(urlencode({**query, "after": str(last)}))

    async def _until_after(self, last: int, watcher: Watcher) -> None:
        """Wait until the run has an event after `last`. Raises _Ended."""
        while True:
            now = watcher.now
            if now is None:
                raise _Ended("removed")
            if now.is_erased:
                raise _Ended("erased")
            if now.seq > last:
                return
            if now.is_over:
                raise _Ended("run-ended")
            await self._news(watcher)

    async def _page(self, query: str) -> dict[str, Any]:
        """Return the next page of events, authorized again. Raises _Ended."""
        while True:
            found = await self._streams._ask(self._scope, query)
            if found.status == 200:
                page: dict[str, Any] = json.loads(found.body)
                return page
            if found.status != 503:
                raise _Ended(str(json.loads(found.body).get("code", "refused")))
            await self._write(": busy\n\n")
            await asyncio.sleep(problems.RETRY_AFTER_SECONDS)

    async def _live(self, watcher: Watcher) -> None:
        """Send the models' output so far, each time it has grown."""
        async with ears.open(UUID(self._run_id)) as ear:
            while True:
                if watcher.now is None or watcher.now.is_erased or watcher.now.is_over:
                    await self._until_after(watcher.now.seq if watcher.now else 0, watcher)
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS / 5):
                        text = await ear.get()
                except TimeoutError:
                    await self._write(": \n\n")
                    continue
                rows = [{"slot": one.slot, "text": one.text, "characters": one.characters} for one in text]
                await self._write(f"event: output\ndata: {json.dumps({'results': rows})}\n\n")

    async def _news(self, watcher: Watcher) -> None:
        """Wait for a change of the run, sending heartbeats while waiting."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await watcher.moved.wait()
                    watcher.moved.clear()
                    return
            await self._write(": \n\n")


def _reason(done: Iterable[asyncio.Task[Any]]) -> str:
    """Return the reason of the first task that ended. Raises any other error of that task."""
    errors = [error for each in done if (error := each.exception()) is not None]
    for error in errors:
        if not isinstance(error, _Ended):
            raise error
    return str(errors[0])


@asynccontextmanager
async def _leaving(receive: Receive) -> AsyncIterator[asyncio.Task[None]]:
    """Yield a task that ends when the client leaves."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task = asyncio.create_task(left(), name="client")
    try:
        yield task
    finally:
        task.cancel()


def _takes_stream(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/event-stream" in value.lower() for name, value in scope["headers"])


def _last_event_id(scope: Scope) -> bytes | None:
    return next((bytes(value) for name, value in scope["headers"] if name == b"last-event-id"), None)


def _key_mark(sender: str | None) -> str:
    return sha256((sender or "").encode()).hexdigest()
