"""The clock of a story, which only the test advances."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from runs.engine.runtime import RetryPolicy

T = TypeVar("T")


def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, even inside a running loop, as in an async test."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as own:
        return own.submit(asyncio.run, work).result()


BEGINNING = datetime(2026, 1, 5, 9, tzinfo=UTC)


class Clock:
    """The clock behind `ctx.now()` and all deadlines."""

    def __init__(self, at: datetime = BEGINNING) -> None:
        if at.tzinfo is None:
            raise ValueError("the clock needs a datetime with a time zone")
        self.now = at.astimezone(UTC)

    def move_to(self, at: datetime) -> None:
        """Move the clock to `at`, forward only."""
        self.now = max(self.now, at)

    def after(self, passed: timedelta) -> datetime:
        """Return the time after `passed`. Raises ValueError if `passed` is negative."""
        if passed < timedelta(0):
            raise ValueError(f"the clock only goes forward, but {passed} is negative")
        return self.now + passed


class AtOnce(RetryPolicy):
    """Retries without real waiting.

    A failure parks the run on a timer, which the story fires when nothing else is left to do.
    """

    def timer(self, round_: int, *, retry_after: float | None = None) -> float:
        """Return the delay without jitter, so that stories are deterministic."""
        return max(min(self.timer_longest, self.timer_first * 2.0 ** min(round_, 20)), retry_after or 0.0)


RETRY = AtOnce(first=0.0, longest=0.0, in_place=-1.0)


class StoryProblem(AssertionError):
    """The next step of the test is impossible. `message` describes the actual state.

    For example, no run waits for that answer, the tool does not exist, or the script has ended.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


class Interrupted(BaseException):
    """Ends the engine's work at once. Exception handlers of nodes and branches don't catch it."""


class Killed(Interrupted):
    """The worker dies here. Nothing catches this exception, and nothing runs after it."""


class Stopped(Interrupted):
    """The story can't continue. The call made by the test raises it again as StoryProblem."""
