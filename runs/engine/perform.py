"""One try of a tool's function: on the loop, or in a thread where it blocks. Its time includes the wait for a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from pydantic import BaseModel

from runs.engine.errors import NotSent
from runs.engine.tools import FOR_DISPATCH, Tool, ToolCall


async def perform(tool: Tool, args: BaseModel, call: ToolCall, threads: Executor | None) -> Any:
    """What the function returns. Raises what it raises, TimeoutError, and NotSent where it was still queueing for a thread then."""
    function = tool.opened(FOR_DISPATCH)
    if tool.is_async:
        async with asyncio.timeout(tool.timeout):
            return await _no_exit(function(args, call))
    turn = _Turn(lambda: function(args, call))
    try:
        async with asyncio.timeout(tool.timeout):
            return await asyncio.get_running_loop().run_in_executor(threads, turn.take)
    except TimeoutError as error:
        if not turn.withdraw():
            raise
        raise NotSent(f"no thread was free for {tool.name} in {tool.timeout:g} s: not sent") from error
    except asyncio.CancelledError:
        turn.withdraw()  # what nobody waits for any more must not begin later
        raise


class _Turn:
    """A blocking call that queues for a thread. Withdrawn before its turn came, it never begins, which proves that nothing left."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._lock = work, threading.Lock()
        self._has_begun = self._is_withdrawn = False

    def take(self) -> Any:
        """In the thread: do the work, unless it was withdrawn."""
        with self._lock:
            if self._is_withdrawn:
                return None
            self._has_begun = True
        return self._work()

    def withdraw(self) -> bool:
        """Whether it had not begun; then it never will."""
        with self._lock:
            self._is_withdrawn = True
            return not self._has_begun


async def _no_exit(calling: Awaitable[Any]) -> Any:
    """A tool's `sys.exit()` would end the worker and every run in it."""
    try:
        return await calling
    except SystemExit as error:
        raise RuntimeError(f"it tried to end the worker process with exit code {error.code}") from error
