"""Permits for limited tools and models. Each try needs a permit; permits are shared by all workers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, TypeVar

from runs.engine.errors import NotBegun, Passing, describe_error
from runs.engine.guards import Guard
from runs.engine.journal import Batch, WaitSpec
from runs.engine.limits import NOTHING_KNOWN, Permit, PermitRequest, Refused, TryResult
from runs.engine.logical_call import LogicalCall
from runs.engine.tape import Attempt
from runs.engine.tools import Tool
from runs.engine.visit import Visit

T = TypeVar("T")
MARGIN_SECONDS = 60.0  # a permit counts as lost this long after its try's time limit


class Permits(Guard):
    """Takes a permit for each try of a limited tool, and reports the result of the try to the tool's breaker."""

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        return visit.runtime.limits.is_known(f"tool:{tool.name}")

    async def before_try(self, call: LogicalCall) -> None:
        visit, tool = call.visit, call.tool
        hold = call.hold = call.hold or Hold(visit, call.slot)
        refused = await hold.take(
            (call.limit_key,),
            lasts=tool.timeout,
            patience=visit.runtime.limit_patience,
            earlier=call.past.waits_of("timer"),
        )
        if refused is not None:
            await park_for_limit(
                visit,
                call.slot,
                call.past,
                refused,
                attempt=call.attempt,
                tool=tool.name,
                title=tool.title,
                call=call.identity,
            )

    def after_try(self, call: LogicalCall, error: BaseException | None) -> None:
        if call.hold is not None:
            permit = call.hold.permit
            if call.abandoned is not None:
                call.hold.leave_later(call.abandoned)
            call.hold.end(permit, error)

    def leave(self, call: LogicalCall) -> None:
        if call.hold is not None:
            call.hold.leave()


PERMITS = Permits()


async def park_for_limit(
    visit: Visit,
    slot: str,
    past: Attempt,
    refused: Refused,
    *,
    attempt: int,
    tool: str,
    title: str,
    call: dict[str, Any],
) -> NoReturn:
    """Park on a durable timer that names the limit."""
    n = past.waits_of("timer")
    seconds = max(1.0, refused.seconds) * (1.0 + random.random() / 10)
    why = {"limit": refused.key, "why": refused.why}
    deadline = visit.journal.now() + timedelta(seconds=seconds)
    wait = WaitSpec(visit.run_id, slot, attempt, "timer", n, deadline, {"tool": tool, "title": title, **why})
    await visit.commit(Batch([wait.opened({**why, **call})], wait=wait))
    visit.park(wait)


class Hold:
    """Holds the permit of one call or request, at most one at a time."""

    def __init__(self, visit: Visit, slot: str) -> None:
        self.visit, self.slot, self.limits = visit, slot, visit.runtime.limits
        self.keys: tuple[str, ...] = ()
        self.permit: Permit | None = None

    async def take(self, keys: tuple[str, ...], *, lasts: float, patience: float, earlier: int) -> Refused | None:
        """Get a permit for the next try. Return None if the try may be made, or the refusal."""
        self.keys = keys
        if self.permit is not None or not self.limits.needs_permit(keys):
            return None
        request = PermitRequest(self.visit.run_id, self.slot, lasts + MARGIN_SECONDS, earlier, patience)
        return await _unless_stopped(self.visit, self._take(request))

    async def _take(self, request: PermitRequest) -> Refused | None:
        """Take a permit and store it at once, so that it can be given back even if the caller is cancelled."""
        answer = await self.limits.take(self.keys, request)
        if isinstance(answer, Refused):
            return answer
        self.permit = answer
        return None

    def leave(self) -> None:
        """Give back the permit, because the try is over or won't be made."""
        permit, self.permit = self.permit, None
        if permit is not None:
            self.limits.give_back(permit)

    def leave_later(self, when_over: Callable[[Callable[[], None]], None]) -> None:
        """Give back the permit later, when an abandoned blocking function ends."""
        permit, self.permit = self.permit, None
        if permit is not None:
            loop, give_back = asyncio.get_running_loop(), partial(self.limits.give_back, permit)
            when_over(partial(_on_loop, loop, give_back))

    def under_way(self) -> _Try:
        """Return a context manager for one try.

        When the context ends, the try's result is reported and the permit is given back.
        """
        return _Try(self)

    def end(self, permit: Permit | None, error: BaseException | None) -> None:
        """Report how a try under a permit ended, and give the permit back unless `leave_later` will do so."""
        self.limits.report(self.keys, permit, _result_of(error))
        self.leave()


class _Try:
    """The context of one try.

    This is a class, because a generator would cost as much as the rest of a try's bookkeeping.
    """

    __slots__ = ("hold", "permit")

    def __init__(self, hold: Hold) -> None:
        self.hold = hold

    def __enter__(self) -> None:
        self.permit = self.hold.permit

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.hold.end(self.permit, error)


_SERVED = TryResult(served=True)


def _result_of(error: BaseException | None) -> TryResult:
    """Return what the result of a try says about the upstream system.

    The result is unknown if the try was cut off or failed locally.
    """
    if error is None:
        return _SERVED
    if isinstance(error, NotBegun) or not isinstance(error, (Passing, TimeoutError)):
        return NOTHING_KNOWN
    after = error.retry_after if isinstance(error, Passing) else None
    return TryResult(served=False, error=describe_error(error), retry_after=max(0.0, after or 0.0))


def _on_loop(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended; then the process gives back all permits anyway
        loop.call_soon_threadsafe(what)


async def _unless_stopped(visit: Visit, waiting: Coroutine[Any, Any, T]) -> T:
    """Await an operation without effects. A stop request ends the wait and the visit."""
    task = asyncio.ensure_future(waiting)
    ends = [asyncio.ensure_future(each.wait()) for each in (visit.control.stop_asked, visit.closing)]
    try:
        await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            visit.check_stop()
            await asyncio.wait([task])  # the stop request was withdrawn
        return task.result()
    finally:
        for each in (task, *ends):
            each.cancel()
