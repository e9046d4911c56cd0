"""Background tasks and threads, which are restarted if they end unexpectedly, and periodic jobs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection

from runs import features, log_messages
from runs.backoff import Patience

log = logging.getLogger("runs.background")


async def run_forever(what: str, act: Callable[[], Awaitable[Any]]) -> None:
    """Run the endless `act` until this task is cancelled, logging and restarting it when it ends."""
    patience = Patience()
    while True:
        began = time.monotonic()
        try:
            await act()
            log.error(log_messages.PART_LEFT, what)
        except Exception:
            log.exception(log_messages.PART_DIED, what)
        if time.monotonic() - began > patience.last_seconds:
            patience.reset()
        await asyncio.sleep(patience.seconds())


def kept_thread(what: str, act: Callable[[], None]) -> None:
    """Run a thread's `act` until it returns, logging and restarting it after errors."""
    patience = Patience()
    while True:
        began = time.monotonic()
        try:
            return act()
        except Exception:
            log.exception(log_messages.PART_DIED, what)
        if time.monotonic() - began > patience.last_seconds:
            patience.reset()
        time.sleep(patience.seconds())


# --- periodic jobs of other apps --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Duty:
    """A periodic job that an app adds to workers.
    `is_due` is an SQL condition checked every few seconds. `act` does all the due work, in its own thread and with its
    own connection; it may take long and run concurrently in several workers. `then` names the jobs that become due
    after it."""

    name: str
    is_due: str
    act: Callable[[], Any]
    then: tuple[str, ...] = ()


class Duties:
    """The periodic jobs of this process, one thread each.
    A job that fails is logged and started again when due."""

    def __init__(self) -> None:
        self._threads: dict[str, threading.Thread] = {}

    @property
    def known(self) -> dict[str, Duty]:
        return {duty.name: duty for duty in features.parts_of_all(lambda each: each.periodic)}

    @property
    def question(self) -> str:
        """Return an SQL expression for the array of names of due jobs."""
        parts = [f"CASE WHEN {duty.is_due} THEN '{duty.name}' END" for duty in self.known.values()]
        return f"array_remove(ARRAY[{', '.join(parts)}]::text[], NULL)"

    def begin(self, name: str) -> None:
        """Start the job in its thread, unless it is running."""
        thread = self._threads.get(name)
        if thread is None or not thread.is_alive():
            thread = threading.Thread(target=self._do, args=[self.known[name]], name=name, daemon=True)
            self._threads[name] = thread
            thread.start()

    def _do(self, duty: Duty) -> None:
        try:
            if duty.act():
                for name in duty.then:
                    self.begin(name)
        except Exception:
            log.exception(log_messages.PART_DIED, duty.name)
        finally:
            connection.close()


duties = Duties()
