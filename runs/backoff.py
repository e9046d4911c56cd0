"""Growing delays between attempts. Pure: no Django, no I/O.
The engine's retries of calls (runs/engine/steps/retry.py) have their own policy, which agents may choose."""

from __future__ import annotations

import random


def pause_seconds(n: int, *, first: float, longest: float, spread: float = 0.0) -> float:
    """Return the delay after the `n`-th failure, counted from 1; 0 if there was none.
    The delay is `first`, doubled for each further failure, up to `longest`. A random fraction of it, up to `spread`, is
    subtracted, so that processes that failed together don't try again together."""
    if n < 1:
        return 0.0
    return min(first * 2.0 ** min(n - 1, 64), longest) * random.uniform(1.0 - spread, 1.0)


class Patience:
    """Growing delays between attempts to reach the database."""

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
