"""Retries of transport errors of tools and model requests: in place for seconds, then after a durable timer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn, TypeVar

from runs.engine.errors import Passing, describe_error, traceback_of
from runs.engine.journal import Batch, WaitSpec
from runs.engine.tape import Attempt
from runs.engine.visit import Visit

T = TypeVar("T")


async def try_until_answered(
    visit: Visit,
    one_try: Callable[[int], Awaitable[T]],
    past: Attempt,
    come_back_later: Callable[[Exception], Awaitable[NoReturn]],
    *,
    is_short: bool = False,
    began: float = 0.0,
    trouble: Exception | None = None,
) -> T:
    """Repeat until a try returns or raises anything but a transient error.

    Each timer in `past` begins a new, shorter round; with `is_short` the first round is shorter too. At the end of a
    round, `come_back_later` parks the run or raises something else. A caller that made the first try itself passes its
    start (`began`, monotonic) and its error (`trouble`).
    """
    policy, round_ = visit.runtime.retry, max(past.waits_of("timer"), int(is_short))
    tries = 0 if trouble is None else 1
    began = began or time.monotonic()
    while True:
        if trouble is None:
            tries += 1
            try:
                return await one_try(tries)
            except (Passing, TimeoutError) as error:
                trouble = error
        delay = policy.delay(tries, retry_after=_retry_after(trouble))
        if policy.is_over(time.monotonic() - began + delay, round_):
            await come_back_later(trouble)
        await visit.rest(delay)
        trouble = None


async def park_for_retry(
    visit: Visit,
    slot: str,
    past: Attempt,
    trouble: Exception,
    *,
    attempt: int,
    tool: str,
    title: str,
    call: dict[str, Any],
) -> NoReturn:
    """Park on a durable timer, because an error persists.

    `call` identifies the call if the record doesn't do so yet.
    """
    n = past.waits_of("timer")
    seconds = visit.runtime.retry.timer(n, retry_after=_retry_after(trouble))
    detail = {"tool": tool, "title": title, "retry": n + 1, "error": describe_error(trouble)}
    wait = WaitSpec(visit.run_id, slot, attempt, "timer", n, visit.journal.now() + timedelta(seconds=seconds), detail)
    await visit.commit(Batch([wait.opened({"error": traceback_of(trouble), **call})], wait=wait))
    visit.park(wait)


def _retry_after(trouble: Exception) -> float | None:
    return trouble.retry_after if isinstance(trouble, Passing) else None


def seconds_asked(headers: Mapping[str, str]) -> float | None:
    """Return `Retry-After` in seconds (RFC 9110 §10.2.3), or None.

    A date is converted relative to the response's own `Date`.
    """
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
