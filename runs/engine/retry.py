"""How transport errors are retried: in place for seconds, then as a durable timer that holds no worker slot."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds throughout. In place the delay doubles from `first` to `longest` until `in_place` is used up; afterwards the run
    parks for `timer_first`, doubling to `timer_longest`, with every round tried in place again."""

    first: float = 0.1
    longest: float = 2.0
    in_place: float = 12.0
    timer_first: float = 5.0
    timer_longest: float = 60.0

    def delay(self, tries: int) -> float:
        """Before try number `tries` + 1, in place. Jittered by half, so that many runs don't come back at once."""
        return min(self.longest, self.first * 2.0 ** min(tries - 1, 20)) * (0.5 + random.random() / 2)

    def timer(self, round_: int) -> float:
        """How long the durable timer of this round (from 0) runs."""
        return min(self.timer_longest, self.timer_first * 2.0 ** min(round_, 20))
