"""Several workers' permits in one event loop, without processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID, uuid4

from django.db import connection

from durableagents.contrib.limits import services as acts
from durableagents.contrib.limits.models import Limit
from durableagents.contrib.limits.permits import WorkerLimits
from ledger.actors import Actor
from runs.engine.limits import Permit, PermitRequest, Refused, Rule, TryResult
from runs.models import Process
from tests.integration.runs.stage import Stage, now
from tests.world import OLGA

T = TypeVar("T")
WHY = "the test says so"
KEY = "tool:charge"
RUN = str(uuid4())
FAILED, SERVED = TryResult(served=False, error="away"), TryResult(served=True)


def said(key: str = KEY, *, by: Actor = OLGA, **rule: int) -> Limit:
    return acts.set_limit(key, Rule(**rule), by=by, justification=WHY)


def permits_of(stage: Stage) -> WorkerLimits:
    return WorkerLimits(stage.hire().id)


class Team:
    """Workers in one event loop, each with its own permits."""

    def __init__(self, stage: Stage, count: int = 1) -> None:
        self.stage = stage
        self.all = [permits_of(stage) for _ in range(count)]

    def play(self, story: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            pool = await self.stage.connected()
            await self.look()
            serving = [asyncio.create_task(one.serve(pool)) for one in self.all]
            await asyncio.sleep(0)
            try:
                return await story(*self.all)
            finally:
                for task in serving:
                    task.cancel()
                await asyncio.wait(serving)
                for one in self.all:
                    await one.send(pool)

        return self.stage.wait(whole())

    async def look(self) -> None:
        """Let every worker read the current limits."""
        async with (await self.stage.connected()).connection() as link:
            for one in self.all:
                one._read_at = float("-inf")
                await one.refresh(link)


def asked(slot: str = "0.1/1", *, patience: float = 2.0, earlier: int = 0, lasts: float = 60.0) -> PermitRequest:
    return PermitRequest(RUN, slot, lasts, earlier, patience)


def granted(answer: Permit | Refused) -> Permit:
    assert isinstance(answer, Permit), answer
    return answer


def die(worker: UUID) -> None:
    Process.objects.filter(pk=worker).update(ended_at=now())
    connection.close()


async def in_thread(act: Callable[[], T]) -> T:
    """Return the result of `act` from a thread with its own connection."""

    def tidily() -> T:
        try:
            return act()
        finally:
            connection.close()

    return await asyncio.to_thread(tidily)


async def row_once(found: Callable[[Limit], Any], key: str = KEY) -> Limit:
    find = Limit.objects.filter(pk=key).first
    while (row := await in_thread(find)) is None or not found(row):  # noqa: ASYNC110  what is waited for is a row
        await asyncio.sleep(0.02)
    return row
