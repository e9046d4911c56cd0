"""What lists are told: that something moved, together and not event by event.

A list shows many runs, so every ring concerns it. Its watchers are told of all that rang since the last time at once, with the moment of
the newest of it by the database's clock: what a page reads must be at least as new (see ledger/shared.py). The more watch, the longer it
is until the next time, since each of them then reads its page again: what all lists of a process cost together is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from django.db import connection

from runs import live
from runs.beside import kept
from runs.watch import in_thread

SHORTEST_SECONDS = 0.25
# Between two times, for each watcher; and between one watcher and the next, so that they don't all come at the same moment.
SECONDS_EACH = 0.015
APART_SECONDS = 0.005


class Watcher:
    """One list that is open somewhere: the newest moment that it has not been told."""

    def __init__(self) -> None:
        self._at = 0
        self._is_due = asyncio.Event()

    def tell(self, at: int) -> None:
        self._at = max(self._at, at)
        self._is_due.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        await self._is_due.wait()
        self._is_due.clear()
        return self._at


class Pulse(live.Subscription):
    """Rings of all runs as one: when the newest was sent. 0 for *some may have been missed*."""

    def __init__(self) -> None:
        super().__init__(None)
        self._at: int | None = None

    def hear(self, payload: str) -> None:
        at = live.moment_of(payload)
        self._at = max(self._at or at, at) if at and self._at != 0 else 0
        self._filled.set()

    def reread(self) -> None:
        self._at = 0
        self._filled.set()

    async def next(self) -> None:
        """Returns when anything has rung that was not taken."""
        await self._filled.wait()

    def take(self) -> int:
        self._filled.clear()
        at, self._at = self._at or 0, None
        return at


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
        async with live.hub.hearing(Pulse()) as pulse:
            while True:
                await pulse.next()
                # Without a moment, or with rings that were not heard, everything up to now has to be read.
                at = pulse.take() or await in_thread(now)
                told = list(self._watchers)
                for watcher in told:
                    watcher.tell(at)
                    await asyncio.sleep(APART_SECONDS if len(told) > 1 else 0)
                await asyncio.sleep(max(SHORTEST_SECONDS, len(told) * (SECONDS_EACH - APART_SECONDS)))


def now() -> int:
    """The database's clock, in microseconds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int(cursor.fetchone()[0])


ticks = Ticks()
