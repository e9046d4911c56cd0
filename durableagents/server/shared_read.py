"""A database query for public endpoints, limited in time and shared by concurrent requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from django.db import connection

T = TypeVar("T")


class SharedRead(Generic[T]):
    """Shares the result of a function between concurrent callers.

    So a database that doesn't answer occupies only one thread and one connection. A stalled database (a frozen host, a
    hanging disk) neither answers nor refuses, and enforces no timeout itself.
    """

    def __init__(self, name: str, read: Callable[[], T]) -> None:
        self._name, self._read = name, read
        self._lock = threading.Lock()
        self._reading: Future[T] | None = None
        self._since = 0.0

    def result(self, seconds: float) -> T:
        """Return the function's result from a call that began at most `seconds` ago.

        Raises TimeoutError, and the function's own errors.
        """
        with self._lock:
            if self._reading is None or self._reading.done():
                self._reading, self._since = Future(), time.monotonic()
                # A daemon thread, because a process that is told to end must not wait for the database.
                threading.Thread(target=self._run, args=(self._reading,), name=self._name, daemon=True).start()
            reading, left = self._reading, max(self._since + seconds - time.monotonic(), 0.0)
        return reading.result(left)

    def _run(self, reading: Future[T]) -> None:
        try:
            reading.set_result(self._read())
        except BaseException as error:
            reading.set_exception(error)  # raised in the caller
        finally:
            connection.close()
