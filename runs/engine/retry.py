"""How transport errors are retried: in place for seconds, then as a durable timer that holds no worker slot."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds throughout. In place the delay doubles from `first` to `longest` until `in_place` is used up; afterwards the run
    parks for `timer_first`, doubling to `timer_longest`, and each later round tries in place for `in_place_later` only: so an outage
    of hours leaves a handful of events an hour, and its end is noticed within about as long as it lasted, 5 minutes at most.

    What the other side asks for (`Retry-After`) is kept to, up to `asked_longest`. Everything is jittered, so that many runs that
    were stopped by one outage don't come back at once."""

    first: float = 0.1
    longest: float = 2.0
    in_place: float = 12.0
    in_place_later: float = 2.0
    timer_first: float = 5.0
    timer_longest: float = 300.0
    asked_longest: float = 3600.0

    def delay(self, tries: int, *, asked: float | None = None) -> float:
        """Before try number `tries` + 1, in place; never less than what the other side `asked` for."""
        own = min(self.longest, self.first * 2.0 ** min(tries - 1, 20)) * (0.5 + random.random() / 2)
        return own if asked is None else own + self._asked(asked)

    def is_over(self, seconds: float, round_: int) -> bool:
        """Whether a round (from 0) that would then have lasted so long gives way to a timer."""
        return seconds > (self.in_place if round_ == 0 else min(self.in_place, self.in_place_later))

    def timer(self, round_: int, *, asked: float | None = None) -> float:
        """How long the durable timer of this round (from 0) runs."""
        own = min(self.timer_longest, self.timer_first * 2.0 ** min(round_, 20))
        return max(own, self._asked(asked or 0.0)) * (1.0 + random.random() / 4)

    def _asked(self, seconds: float) -> float:
        return min(max(seconds, 0.0), self.asked_longest)


def seconds_asked(headers: Mapping[str, str]) -> float | None:
    """What a response's `Retry-After` asks for (RFC 9110 §10.2.3): seconds, or a date, which is read against the response's own
    `Date`: this machine's clock may be a day off. None for none, and for what can't be read."""
    text = (headers.get("retry-after") or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    until, at = _moment(text), _moment(headers.get("date") or "")
    return None if until is None or at is None else max(0.0, until - at)


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
