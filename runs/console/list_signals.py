"""What lists are told: that something moved, together and not event by event.

A list shows many runs, so every ring concerns it. Its watchers are told of all that rang since the last time at once,
with the moment of the newest of it by the database's clock: what a page reads must be at least as new (see
ledger/web/shared_rendering.py). Each of them then reads its page again, so only so many are told at a time, those first
who have waited longest: however many watch and however much moves, what all lists of a process cost together is
bounded, and the more watch, the longer it is until each one's next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from django.db import connection

from ledger.clock import MOMENT
from runs.background import kept
from runs.console.socket_watch import in_thread
from runs.journal import notify

# A page reads itself again twice a second at most. Those that are told at the same time share a rendering.
SECONDS = 0.5
AT_ONCE = 16


class Watcher:
    """One list that is open somewhere: the newest moment that it was told of, and whether it has taken that."""

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
    """Rings of all runs as one: when the newest was sent. 0 for *some may have been missed*."""

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
        """The newest moment, `known` if nothing has rung since; waits for a ring if it may."""
        if may_wait:
            await self._filled.wait()
        if not self._filled.is_set():
            return known
        self._filled.clear()
        at, self._at = self._at, None
        # Without a moment, or with rings that were not heard, everything up to now has to be read.
        return max(known, at if at else await in_thread(now))


class Ticks:
    """Tells the watchers of a process. It listens while there are any."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watcher]:
        watcher = Watcher()
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(kept("the pages' ticks", self._run), name="ticks")
        try:
            watcher.tell(await in_thread(now))
            yield watcher
        finally:
            self._watchers.discard(watcher)
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        at = 0
        async with notify.hub.hearing(Pulse()) as pulse:
            pulse.reread()  # this may be a second beginning, after an outage in which something rang
            while True:
                at = await pulse.newest(at, may_wait=not self._behind(at))
                for watcher in self._behind(at)[:AT_ONCE]:
                    watcher.tell(at)
                await asyncio.sleep(SECONDS)

    def _behind(self, at: int) -> list[Watcher]:
        """Who has not been told of that moment, the longest ago first."""
        return sorted(
            (watcher for watcher in self._watchers if watcher.newest < at), key=lambda watcher: watcher.newest
        )


def now() -> int:
    """The database's clock, in microseconds."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {MOMENT}")
        return int(cursor.fetchone()[0])


ticks = Ticks()
