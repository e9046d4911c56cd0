"""Waiting for other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Generous, because other tests may load the machine; promised times are asserted where they matter.
PATIENCE_SECONDS = 120.0


def eventually(found: Callable[[], T], what: str = "the condition", seconds: float = PATIENCE_SECONDS) -> T:
    """Return the first true answer of `found`; fail with `what` when there is none in time."""
    began = time.monotonic()
    while not (answer := found()):
        if time.monotonic() > began + seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        pause(began)
    return answer


def pause(began: float) -> None:
    """Sleep between two checks, a tenth of the time since `began`, because each check costs the others time."""
    time.sleep(min(max(0.01, (time.monotonic() - began) / 10), 0.25))
