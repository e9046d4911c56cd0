"""How long to wait before the next attempt: longer each time, up to a limit. Pure: no Django, no I/O.

The engine's retries of calls (runs/engine/steps/retry.py) are a policy of their own, which agents may choose.
"""

from __future__ import annotations

import random


def pause_seconds(n: int, *, first: float, longest: float, spread: float = 0.0) -> float:
    """Before the n-th next attempt, from 1: `first`, twice that, … `longest`; less by up to `spread` of it, so that
    many who began at once don't go on in step. None before there was a first one."""
    if n < 1:
        return 0.0
    return min(first * 2.0 ** min(n - 1, 64), longest) * random.uniform(1.0 - spread, 1.0)


class Patience:
    """How long to wait before the next attempt to reach the database."""

    def __init__(self, *, first_seconds: float = 0.1, last_seconds: float = 2.0) -> None:
        self._first, self.last_seconds = first_seconds, last_seconds
        self._failures = 0

    def seconds(self) -> float:
        self._failures += 1
        return pause_seconds(self._failures, first=self._first, longest=self.last_seconds, spread=0.5)

    @property
    def is_fresh(self) -> bool:
        return self._failures == 0

    def reset(self) -> None:
        self._failures = 0
