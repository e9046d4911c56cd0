"""What a call or a request holds while a try of it is under way: a permit of what all workers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from runs.engine.errors import NotSent, Passing, brief
from runs.engine.limits.permits import NOTHING, Asked, Permit, Refused, Told
from runs.engine.runtime import Runtime
from runs.engine.visit import Visit

T = TypeVar("T")
MARGIN_SECONDS = 60.0  # how much longer than its time limit a try may take before its permit counts as lost


class NotBegun(NotSent):
    """Nothing left, for a reason of this process's own: it says nothing about the other side."""


class Hold:
    """The permits of one call, or of one request: at most one at a time. Left, it holds none."""

    def __init__(self, visit: Visit, slot: str, keys: tuple[str, ...] = ()) -> None:
        self.visit, self.slot, self.keys = visit, slot, keys
        self.permit: Permit | None = None

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    @property
    def _runtime(self) -> Runtime:
        return self.visit.runtime

    @property
    def is_due(self) -> bool:
        """Whether the next try needs a permit that isn't here yet."""
        return self.permit is None and self._runtime.limits.concerns(self.keys)

    async def take(self, keys: tuple[str, ...], *, lasts: float, patience: float, earlier: int) -> Refused | None:
        """Make sure of a permit for the next try. None: it may go out."""
        self.keys = keys
        if not self.is_due:
            return None
        asked = Asked(self.visit.run_id, self.slot, lasts + MARGIN_SECONDS, earlier, patience)
        return await _unless_stopped(self.visit, self._take(asked))

    async def _take(self, asked: Asked) -> Refused | None:
        """Whoever asked may have been cut off by the time it comes: then it is here to be given back."""
        answer = await self._runtime.limits.take(self.keys, asked)
        if isinstance(answer, Refused):
            return answer
        self.permit = answer
        return None

    def leave(self) -> None:
        """Give back what is held: the try is over, or is not made."""
        permit, self.permit = self.permit, None
        if permit is not None:
            self._runtime.limits.give_back(permit)

    def leave_later(self, when_over: Callable[[Callable[[], None]], None]) -> None:
        """A blocking function still runs, though nobody waits for it any more: what it holds is given back when it ends
        (or when its time is over)."""
        permit, self.permit = self.permit, None
        if permit is not None:
            loop, give_back = asyncio.get_running_loop(), partial(self._runtime.limits.give_back, permit)
            when_over(partial(_on_loop, loop, give_back))

    def under_way(self) -> _Try:
        """One try, as a context: what becomes of it is told, and its permit given back."""
        return _Try(self)

    def end(self, permit: Permit | None, told: Told) -> None:
        """A try is over."""
        self._runtime.limits.tell(self.keys, permit, told)
        self.leave()


class _Try:
    """A class, for a generator costs as much as a try's other books together."""

    __slots__ = ("hold", "permit")

    def __init__(self, hold: Hold) -> None:
        self.hold = hold

    def __enter__(self) -> None:
        self.permit = self.hold.permit

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.hold.end(self.permit, _became_of(error))


_SERVED = Told(served=True)


def _became_of(error: BaseException | None) -> Told:
    """What a try says of the other side. One that was cut off, or broke over here, says nothing."""
    if error is None:
        return _SERVED
    if isinstance(error, NotBegun) or not isinstance(error, (Passing, TimeoutError)):
        return NOTHING
    after = error.retry_after if isinstance(error, Passing) else None
    return Told(served=False, error=brief(error), retry_after=max(0.0, after or 0.0))


def _on_loop(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and its process gives back all it has
        loop.call_soon_threadsafe(what)


async def _unless_stopped(visit: Visit, waiting: Coroutine[Any, Any, T]) -> T:
    """Wait in place for something that has no effect; a stop ends the wait and the visit."""
    task = asyncio.ensure_future(waiting)
    ends = [asyncio.ensure_future(each.wait()) for each in (visit.control.stop_asked, visit.closing)]
    try:
        await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            visit.check_stop()
            await asyncio.wait([task])  # a wish that was taken back
        return task.result()
    finally:
        for each in (task, *ends):
            each.cancel()
