"""What runs beside the driving of runs, in tasks and threads of its own: none of it may end unseen."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

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
