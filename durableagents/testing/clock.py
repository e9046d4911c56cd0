"""The clock of a story: it stands still until the test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from runs.engine.runtime import RetryPolicy

T = TypeVar("T")


def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Also where a loop is running already, as in a test that is a coroutine itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as own:
        return own.submit(asyncio.run, work).result()


BEGINNING = datetime(2026, 1, 5, 9, tzinfo=UTC)


class Clock:
    """What `ctx.now()` and all deadlines go by."""

    def __init__(self, at: datetime = BEGINNING) -> None:
        if at.tzinfo is None:
            raise ValueError("the clock needs an aware datetime: one with a time zone")
        self.now = at.astimezone(UTC)

    def move_to(self, at: datetime) -> None:
        """To `at`: forward, never back."""
        self.now = max(self.now, at)

    def after(self, passed: timedelta) -> datetime:
        """When so much (`passed`) will have gone by. Raises ValueError for a way back."""
        if passed < timedelta(0):
            raise ValueError(f"the clock goes forward only, and {passed} is back")
        return self.now + passed


class AtOnce(RetryPolicy):
    """No real waiting: trouble parks the run on a timer, which the story rings when nothing else is to be done."""

    def timer(self, round_: int, *, retry_after: float | None = None) -> float:
        """Without the jitter of real life, so that a story is the same each time."""
        return max(min(self.timer_longest, self.timer_first * 2.0 ** min(round_, 20)), retry_after or 0.0)


RETRY = AtOnce(first=0.0, longest=0.0, in_place=-1.0)


class StoryProblem(AssertionError):
    """The story can't go on as the test tells it: nothing waits for that answer, no such tool, no turn left to say. The
    `message` says what is."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class Interrupted(BaseException):
    """What leaves the engine at once, whatever a node or a branch makes of exceptions."""


class Killed(Interrupted):
    """The worker dies here: nothing catches it, nothing runs after it."""


class Stopped(Interrupted):
    """The story can't go on; raised again as StoryProblem where the test called."""
