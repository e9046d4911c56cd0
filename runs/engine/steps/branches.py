"""Parallel branches of a node, each in its own task, with its calls numbered below a fixed path.

A branch that must wait exits by an internal exception. The node waits once every branch has finished or waits, so a
replay doesn't depend on the order of events.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from ledger import events as e
from runs.engine.continuation import Handoff, Renew
from runs.engine.errors import MisusedContext
from runs.engine.outcomes import Unwind
from runs.engine.runtime import is_being_cancelled
from runs.engine.visit import Branch, Visit, path_of

Work = Coroutine[Any, Any, Any]


async def gather(visit: Visit, works: Sequence[Work], *, return_exceptions: bool) -> list[Any]:
    """Run the node's coroutines as branches and return their results in order.

    Once all have finished, raises the first exception in their order.
    """
    try:
        for work in works:
            if not inspect.iscoroutine(work):
                raise TypeError(
                    f"gather takes coroutines that have not begun, such as ctx.call(…), not {type(work).__name__}"
                )
        slot = visit.next_slot()
        what = f"gather of {len(works)}"
        if visit.recall(slot, what, "").what is None:
            event = e.BranchesOpened(slot=slot, branches=len(works))
            visit.tape.add(event)
            visit.buffer(event)
        path = path_of(slot)
        branches = await fork(visit, [(f"{path}/{i}/", work) for i, work in enumerate(works)])
    finally:
        for work in works:
            if inspect.iscoroutine(work):
                work.close()
    return [_outcome(branch, return_exceptions) for branch in branches]


async def fork(visit: Visit, works: Sequence[tuple[str, Work]]) -> list[Branch]:
    """Run coroutines as branches, each below its path, until all have finished or wait.

    Exits by an internal exception on a wait or a stop.
    """
    branches = [Branch(under) for under, _ in works]
    tasks = [
        asyncio.create_task(drive(visit, b, partial(_staying, work)))
        for b, (_, work) in zip(branches, works, strict=True)
    ]
    try:
        with visit.step():
            if tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await _end(tasks)
        for _, work in works:
            work.close()  # for a branch whose task was cancelled before it began
    # An error of a task, unlike one of a branch, ends the process or the drive; the other branches were only cut off
    # because of it.
    for error in [task.exception() for task in tasks if not task.cancelled()]:
        if error is not None:
            raise error
    if any(task.cancelled() for task in tasks):
        raise asyncio.CancelledError
    if visit.has_ended:
        raise Unwind
    waits = [wait for branch in branches for wait in branch.waits]
    if waits:
        visit.park(*waits)
    return branches


async def drive(visit: Visit, branch: Branch, work: Callable[[], Awaitable[Any]]) -> None:
    """Run a branch in its own task and store its outcome. Raises only errors that end the whole drive."""
    with visit.places.running(branch):
        try:
            branch.result = await work()
        except Unwind:
            pass  # the branch has its waits, or the visit has its outcome
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            branch.error = error


async def _staying(work: Work) -> Any:
    """Await a branch. Raises MisusedContext for Renew or Handoff, because only the node itself may return those."""
    result = await work
    if isinstance(result, (Renew, Handoff)):
        raise MisusedContext(f"a branch of gather returned {type(result).__name__}: return it from the node itself")
    return result


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _outcome(branch: Branch, return_exceptions: bool) -> Any:
    if branch.error is None:
        return branch.result
    if return_exceptions and isinstance(branch.error, Exception):
        return branch.error
    raise branch.error
