"""What runs beside the driving of runs, in tasks and threads of its own: none of it may end unseen."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection

from runs import log_messages
from runs.backoff import Patience

log = logging.getLogger("runs.background")


async def kept(what: str, act: Callable[[], Awaitable[Any]]) -> None:
    """Do `act`, which is made to go on for ever, until this task is cancelled: whatever ends it is said, and it begins
    anew."""
    patience = Patience()
    while True:
        began = time.monotonic()
        try:
            await act()
            log.error(log_messages.BESIDE_LEFT, what)
        except Exception:
            log.exception(log_messages.BESIDE_DIED, what)
        if time.monotonic() - began > patience.last_seconds:
            patience.reset()
        await asyncio.sleep(patience.seconds())


def kept_thread(what: str, act: Callable[[], None]) -> None:
    """The same for a thread's work, which is done when it returns."""
    patience = Patience()
    while True:
        began = time.monotonic()
        try:
            return act()
        except Exception:
            log.exception(log_messages.BESIDE_DIED, what)
        if time.monotonic() - began > patience.last_seconds:
            patience.reset()
        time.sleep(patience.seconds())


# --- duties of other apps ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Duty:
    """What another app has workers do. `is_due` is a condition in SQL, asked by each of them with its other rare
    questions, every few seconds; `act` does all that is due, safe to be done by several at once, and may take long:
    it has a thread and a connection of its own. `then` names what it makes due by that."""

    name: str
    is_due: str
    act: Callable[[], Any]
    then: tuple[str, ...] = ()


class Duties:
    """The duties of this process, each done by one thread at a time; whatever ends one early is said, and it is begun
    anew when it is found due the next time."""

    def __init__(self) -> None:
        self._known: dict[str, Duty] = {}
        self._threads: dict[str, threading.Thread] = {}

    def add(self, duty: Duty) -> None:
        """One more; of the same name the last one counts."""
        self._known[duty.name] = duty

    @property
    def question(self) -> str:
        """As a value in SQL: the names of those that are due."""
        parts = [f"CASE WHEN {duty.is_due} THEN '{duty.name}' END" for duty in self._known.values()]
        return f"array_remove(ARRAY[{', '.join(parts)}]::text[], NULL)"

    def begin(self, name: str) -> None:
        """Do it beside all else, unless it is being done."""
        thread = self._threads.get(name)
        if thread is None or not thread.is_alive():
            thread = threading.Thread(target=self._do, args=[self._known[name]], name=name, daemon=True)
            self._threads[name] = thread
            thread.start()

    def _do(self, duty: Duty) -> None:
        try:
            if duty.act():
                for name in duty.then:
                    self.begin(name)
        except Exception:
            log.exception(log_messages.BESIDE_DIED, duty.name)
        finally:
            connection.close()


duties = Duties()
