"""The web process's side of live output.
It queries the table a few times a second, once for all open pages; without open pages, it doesn't query at all. A table
is used because notifications don't pass through a pooler and are too short for texts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from django.db import Error

from runs.overheard.reading import LISTENED_SECONDS, LiveOutput, listen, live_output_of

EVERY_SECONDS = 0.35
TROUBLE_SECONDS = 3.0
InThread = Callable[..., Awaitable[Any]]


class Ear:
    """One page's subscription.
    A subscription gets the newest output of its run's models; missed output doesn't matter."""

    def __init__(self) -> None:
        self._now: list[LiveOutput] = []
        self._has_news = asyncio.Event()

    def tell(self, now: list[LiveOutput]) -> None:
        if now != self._now:
            self._now = now
            self._has_news.set()

    async def get(self) -> list[LiveOutput]:
        await self._has_news.wait()
        self._has_news.clear()
        return self._now


class LiveSubscriptions:
    """The subscriptions of all pages of this process.
    `in_thread` queries the database outside the event loop."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._ears: dict[UUID, set[Ear]] = {}
        self._look: asyncio.Task[None] | None = None
        self._listened: dict[UUID, float] = {}

    @asynccontextmanager
    async def open(self, run_id: UUID) -> AsyncIterator[Ear]:
        """Subscribe to the run's output while a page shows it."""
        ear = Ear()
        self._ears.setdefault(run_id, set()).add(ear)
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._keep_looking(), name="ears")
        try:
            yield ear
        finally:
            self._ears[run_id].discard(ear)
            if not self._ears[run_id]:
                del self._ears[run_id]
                self._listened.pop(run_id, None)

    async def _keep_looking(self) -> None:
        while self._ears:
            try:
                await self._once()
            except Error:
                await asyncio.sleep(TROUBLE_SECONDS)  # the pages themselves show that the database is unreachable
            await asyncio.sleep(EVERY_SECONDS)

    async def _once(self) -> None:
        runs = list(self._ears)
        due = [run for run in runs if self._listened.get(run, 0.0) <= time.monotonic()]
        if due:
            await self._in_thread(listen, due)
            self._listened |= dict.fromkeys(due, time.monotonic() + LISTENED_SECONDS / 3)
        now = await self._in_thread(live_output_of, runs)
        for run, subscriptions in list(self._ears.items()):
            for ear in list(subscriptions):
                ear.tell(now.get(run, []))
