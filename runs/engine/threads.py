"""Threads for blocking tool functions. Each tool has its own threads, so that a hanging tool doesn't delay others."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypedDict, TypeVar

T = TypeVar("T")
log = logging.getLogger("durableagents.engine")

# A timeout ends the wait for a call, not its thread. So hanging calls only use up the threads of their own tool.
THREADS_PER_TOOL = 32


def _new_pool(tool: str, size: int) -> Executor:
    return ThreadPoolExecutor(size, thread_name_prefix=f"tool {tool}")


class BusyTool(TypedDict):
    """A tool whose threads are all busy: how many are busy, out of how many, and for how many seconds."""

    tool: str
    busy: int
    threads: int
    seconds: float


class ToolThreads:
    """The threads of one worker process, by tool. Threads are started on demand."""

    def __init__(self, size: int = THREADS_PER_TOOL, new_pool: Callable[[str, int], Executor] = _new_pool) -> None:
        self.size, self._new_pool = size, new_pool
        self._pools: dict[str, Executor] = {}
        self._busy: Counter[str] = Counter()
        self._all_busy_since: dict[str, float] = {}
        self._abandoned: Counter[str] = Counter()
        self._lock = threading.Lock()

    def of(self, tool: str) -> Executor:
        """Return the executor of a tool."""
        pool = self._pools.get(tool)
        if pool is None:
            pool = self._pools[tool] = self._new_pool(tool, self.size)
        return pool

    def counted(self, tool: str, work: Callable[[], T]) -> Callable[[], T]:
        """Wrap `work` to run in the current context, which log lines use, and to count its thread as busy meanwhile."""
        return partial(copy_context().run, self.count, tool, work)

    def count(self, tool: str, work: Callable[[], T]) -> T:
        """Run a tool's work in the current thread, and count the thread as busy meanwhile."""
        with self._lock:
            self._busy[tool] += 1
            if self._busy[tool] == self.size:
                self._all_busy_since[tool] = time.monotonic()
        try:
            return work()
        finally:
            with self._lock:
                self._busy[tool] -= 1
                self._all_busy_since.pop(tool, None)

    def all_busy(self) -> list[BusyTool]:
        """Return the tools whose threads are all busy. A worker's heartbeat reports these tools."""
        now = time.monotonic()
        with self._lock:
            since = sorted(self._all_busy_since.items())
        return [BusyTool(tool=tool, busy=self.size, threads=self.size, seconds=now - at) for tool, at in since]

    def abandoned(self) -> dict[str, int]:
        """Return, for each tool, the number of threads occupied by calls that no run waits for any more."""
        with self._lock:
            return {tool: count for tool, count in self._abandoned.items() if count}

    def is_exhausted(self, tool: str) -> bool:
        """Return whether abandoned calls occupy all threads of a tool, so that waiting for one is pointless."""
        return self._abandoned[tool] >= self.size

    def abandon(self, tool: str, when_over: Callable[[Callable[[], None]], None]) -> None:
        """Count a thread as abandoned until its call ends."""
        with self._lock:
            self._abandoned[tool] += 1
            is_last = self._abandoned[tool] == self.size
        if is_last:
            log.error("tool %s: calls that hang hold all of its %s threads here; its other calls wait", tool, self.size)
        when_over(partial(self._over, tool))

    def _over(self, tool: str) -> None:
        with self._lock:
            self._abandoned[tool] -= 1

    def why_none(self, tool: str) -> str:
        """Return the error text for a call that got no thread."""
        hung = self.abandoned().get(tool, 0)
        return f"no thread was free for {tool}: calls past their time limit occupy {hung} of its {self.size}; not sent"

    def shutdown(self) -> None:
        """Shut down without waiting for calls in progress."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
