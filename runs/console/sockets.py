"""Sockets that relay sequence numbers; content comes from the pages, which check access.

Messages are `{"run": id, "seq": n}`; `{"run": null, "seq": 0}` means reload, because notifications may have been
missed, or (for lists) a change at `at` (microseconds on the database's clock). Readers of payloads also get `{"saying":
[…]}`, live model output. Close codes: 4401 session ended, 4403 no role (within `CHECK_SECONDS`), 4404 no such run
for this viewer. A changed access scope also closes the socket, so that the page reconnects.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Self
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.http import parse_cookie

from ledger.clock import MOMENT
from ledger.models import Head
from ledger.web.seeing.viewers import Viewer
from runs import seen
from runs.background import run_forever
from runs.console.socket_watch import BROKEN, OpenItems, Verdict, guard, in_thread, sighted
from runs.journal import notify
from runs.journal.notify import hub
from runs.overheard.ears import LiveSubscriptions

# A page reloads at most twice a second. Pages that are notified at the same time share a rendering.
SECONDS = 0.5
AT_ONCE = 16


class Watcher:
    """An open list: the time of the newest change it was notified of, and whether it has yet to process that change."""

    def __init__(self) -> None:
        self.newest = 0
        self._is_due = asyncio.Event()

    def tell(self, at: int) -> None:
        self.newest = max(self.newest, at)
        self._is_due.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        await self._is_due.wait()
        self._is_due.clear()
        return self.newest


class Pulse(notify.Subscription):
    """Notifications of all runs, reduced to the time of the newest one; 0 if some may have been missed."""

    def __init__(self) -> None:
        super().__init__(None)
        self._at: int | None = None

    def hear(self, payload: str) -> None:
        at = notify.moment_of(payload)
        is_known = at > 0 and self._at != 0
        self._at = max(self._at or 0, at) if is_known else 0
        self._filled.set()

    def reread(self) -> None:
        self._at = 0
        self._filled.set()

    async def newest(self, known: int, *, may_wait: bool) -> int:
        """Return the newest time; `known` if nothing has changed.
        With `may_wait`, wait for a notification first."""
        if may_wait:
            await self._filled.wait()
        if not self._filled.is_set():
            return known
        self._filled.clear()
        at, self._at = self._at, None
        # Without a time, or after missed notifications, everything up to now must be read.
        return max(known, at if at else await in_thread(database_now))


class Ticks:
    """Notifies the open lists of a process.
    It is subscribed to notifications while any lists are open."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watcher]:
        watcher = Watcher()
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(run_forever("the pages' ticks", self._run), name="ticks")
        try:
            watcher.tell(await in_thread(database_now))
            yield watcher
        finally:
            self._watchers.discard(watcher)
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        at = 0
        async with notify.hub.hearing(Pulse()) as pulse:
            pulse.reread()  # This may be a restart after an outage with missed notifications.
            while True:
                at = await pulse.newest(at, may_wait=not self._behind(at))
                for watcher in self._behind(at)[:AT_ONCE]:
                    watcher.tell(at)
                await asyncio.sleep(SECONDS)

    def _behind(self, at: int) -> list[Watcher]:
        return sorted(
            (watcher for watcher in self._watchers if watcher.newest < at), key=lambda watcher: watcher.newest
        )


def database_now() -> int:
    """Return the database's clock, in microseconds."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {MOMENT}")
        return int(cursor.fetchone()[0])


ticks = Ticks()


NO_SUCH_RUN = 4404
POLICY_VIOLATION = 1008  # close codes of RFC 6455
MAX_MESSAGES_PER_SECOND = 50
OWN_SECONDS = 1.0
log = logging.getLogger(__name__)
ears = LiveSubscriptions(in_thread)


class BrowserLeft(Exception):
    """The browser has closed the connection. `disconnect` will be called next."""


class LiveConsumer(AsyncWebsocketConsumer):
    """Sends notifications about changes to all runs, or to the run in the URL."""

    _tasks: list[asyncio.Task[None]]
    _who: Viewer
    _received = 0
    _window_ends = 0.0

    async def connect(self) -> None:
        self._tasks = []
        run_id: UUID | None = self.scope["url_route"]["kwargs"].get("run_id")
        key = session_key(self.scope)
        verdict: Verdict
        try:
            verdict = await guard.verdict(key)
        except (DatabaseError, InterfaceError):
            verdict = BROKEN  # the page tries again
        # If the socket were closed before it is accepted, browsers would see a plain 403 instead of the reason.
        await self.accept()
        if isinstance(verdict, int):
            await self.close(verdict)
            return
        self._who = verdict
        seq = 0
        if run_id is not None:
            newest = await in_thread(_seq, run_id, verdict)
            if newest is None:
                await self.close(NO_SUCH_RUN)
                return
            seq = newest
        parts = [self._relay(run_id, seq), self._guard(key)]
        if run_id is not None and await in_thread(seen.reads, verdict, run_id):
            parts.append(self._overhear(run_id))
        self._tasks = [asyncio.create_task(self._keep(part)) for part in parts]

    async def disconnect(self, code: int) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Ignore messages, because pages send none. A socket that sends more than 50 a second is closed."""
        if time.monotonic() >= self._window_ends:
            self._received, self._window_ends = 0, time.monotonic() + 1.0
        self._received += 1
        if self._received > MAX_MESSAGES_PER_SECOND and self._window_ends != math.inf:
            self._window_ends = math.inf  # buffered messages must not close it again
            await self.close(POLICY_VIOLATION)

    async def _keep(self, part: Coroutine[Any, Any, None]) -> None:
        """Run one half of the socket. If it fails, the socket is closed, so that the page reconnects."""
        try:
            await part
        except BrowserLeft:
            return
        except Exception:
            log.exception("a live socket broke")
            with suppress(BrowserLeft), _to_a_browser():
                await self.close(BROKEN)

    async def _relay(self, run_id: UUID | None, seq: int) -> None:
        async with hub.subscribe(run_id) as rings:
            await self._tell(run_id, seq)
            async for ring in rings:
                if ring is None:
                    await self._tell(None, 0)
                elif run_id is not None or await sighted.sees(self._who, ring[0]):
                    await self._tell(*ring)

    async def _tell(self, run_id: UUID | str | None, seq: int) -> None:
        await self._say({"run": str(run_id) if run_id else None, "seq": seq})

    async def _say(self, fields: dict[str, Any]) -> None:
        with _to_a_browser():
            await self.send(text_data=json.dumps(fields))

    async def _overhear(self, run_id: UUID) -> None:
        async with ears.open(run_id) as ear:
            while True:
                now = [{"slot": one.slot, "text": one.text, "characters": one.characters} for one in await ear.get()]
                await self._say({"saying": now})

    async def _guard(self, key: str | None) -> None:
        """Close the socket when its user signs out or loses their role."""
        code = await guard.ended(key, self._who)
        with _to_a_browser():
            await self.close(code)


class ListConsumer(LiveConsumer):
    """For lists of runs: after each change, sends its time. Pages loaded before that time are out of date."""

    async def _relay(self, run_id: UUID | None, seq: int) -> None:
        if not self._who.sees_all:
            await self._relay_own()
            return
        async with ticks.watch() as moments:
            async for at in moments:
                await self._tick(at)

    async def _relay_own(self) -> None:
        """Send notifications only about runs that the viewer may see, and about their own items in other runs."""
        theirs = OpenItems(self._who.person)
        async with hub.subscribe(None, person=self._who.person) as rings:
            await theirs.have_moved(None)
            await self._tick(await in_thread(database_now))
            async for ring in rings:
                if await theirs.have_moved(ring) or (ring and await sighted.sees(self._who, ring[0])):
                    await asyncio.sleep(OWN_SECONDS)  # this notification covers later ones
                    await self._tick(await in_thread(database_now))

    async def _tick(self, at: int) -> None:
        await self._say({"run": None, "seq": 0, "at": at})


class NowhereConsumer(AsyncWebsocketConsumer):
    """Refuses sockets at any other address.
    If the socket were closed before it is accepted, browsers would see a plain 403 instead of the reason."""

    async def connect(self) -> None:
        await self.accept()
        await self.close(NO_SUCH_RUN)


@contextmanager
def _to_a_browser() -> Iterator[None]:
    """Turn an OSError, which ASGI servers raise once the browser has closed the connection, into BrowserLeft."""
    try:
        yield
    except OSError:
        raise BrowserLeft from None


def session_key(scope: dict[str, Any]) -> str | None:
    """Return the session key from the cookie. It isn't checked."""
    for name, value in scope["headers"]:
        if name == b"cookie" and (key := parse_cookie(value.decode("latin-1")).get(settings.SESSION_COOKIE_NAME)):
            return (
                None if "\x00" in key else str(key)
            )  # keys are looked up together, so one invalid cookie must not break the query
    return None


def _seq(run_id: UUID, who: Viewer) -> int | None:
    if not who.sees_all and not seen.sees(who, run_id):
        return None
    return Head.objects.filter(run_id=run_id).values_list("seq", flat=True).first()
