from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable
from uuid import UUID

from django.db import connection

from runs.engine.threads import BusyTool


def note(*words: object) -> None:
    line = " ".join(str(word) for word in words)
    with open(os.environ["STANDIN_LOG"], "a", encoding="utf-8") as file:
        file.write(line + "\n")


def behaviour() -> str:
    return os.environ.get("STANDIN_BEHAVIOUR", "")


class Host:
    """Serves nothing until drained; STANDIN_BEHAVIOUR makes it misbehave after a wake-up."""

    def __init__(self, *, slots: int, incarnation: UUID, is_fenced: Callable[[], bool]) -> None:
        self.slots, self.incarnation, self.slots_used, self.unsafe_calls = slots, incarnation, 1, 0
        self.busy_tools: list[BusyTool] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung, self._drained = asyncio.Event(), asyncio.Event()

    async def serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        if behaviour() == "leave a child":
            note("left", subprocess.Popen(["sleep", "300"], start_new_session=True).pid)  # noqa: ASYNC220
        note("serve", os.getpid(), self.incarnation, threading.current_thread().name)
        waits = [asyncio.create_task(each.wait()) for each in (self._rung, self._drained)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self._rung.is_set() and behaviour() == "wedge":
            time.sleep(3600)  # noqa: ASYNC251
        if self._rung.is_set() and behaviour() == "raise":
            raise RuntimeError("the host broke")
        await self._drained.wait()
        if behaviour() == "slow drain":
            await asyncio.sleep(3600)
        note("drained", os.getpid())

    def ring(self) -> None:
        note("ring", os.getpid())
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._rung.set)

    def drain(self, deadline_seconds: float) -> None:
        note("drain", os.getpid(), deadline_seconds)
        if self._loop is None:
            self._drained.set()
        else:
            self._loop.call_soon_threadsafe(self._drained.set)


def worker_died(incarnation_id: UUID, proof: str) -> None:
    if behaviour() == "database needed":
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    note("died", incarnation_id, proof)
