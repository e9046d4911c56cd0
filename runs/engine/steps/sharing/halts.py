"""The last look before a call or a request leaves."""

from __future__ import annotations

import time
from typing import NoReturn

from runs.engine.outcomes import Stopped
from runs.engine.visit import Visit


async def is_held_back(visit: Visit, key: str, cleared_at: float) -> bool:
    """Whether what is about to leave under a key must not."""
    halts = visit.runtime.halts
    return halts.must_ask(key, cleared_at) and await visit.look_up(halts.is_halted(visit.run_id, key))


def hold_back(visit: Visit, key: str) -> NoReturn:
    """The run stands still at this call."""
    visit.stop(Stopped("halt", key))


def now() -> float:
    """The clock that `cleared_at` goes by: it goes on while a process is stopped."""
    return time.monotonic()
