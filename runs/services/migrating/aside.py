"""Work with an author's own code, beside the process's other work: in a thread of its own, with a time limit and no
database. One is done at a time in a process: a replay takes the agent's tools out of everybody's hands meanwhile."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import connections

T = TypeVar("T")
SECONDS = 10.0
_alone = threading.BoundedSemaphore(1)


class NotDone(Exception):
    """It was not done: `code` is busy, too_slow or broke; `broke` what the code raised."""

    def __init__(self, code: str, broke: BaseException | None = None) -> None:
        super().__init__(code)
        self.code, self.broke = code, broke


def aside(work: Callable[[], T], name: str) -> T:
    """What `work` gives, if it does in time. `name` is the thread's. Raises NotDone."""
    if not _alone.acquire(timeout=SECONDS):
        raise NotDone("busy")
    got: list[T] = []
    broke: list[BaseException] = []

    def do() -> None:
        try:
            with connections["default"].execute_wrapper(_no_database):
                got.append(work())
        except BaseException as error:
            broke.append(error)
        finally:
            try:
                connections.close_all()
            finally:
                _alone.release()

    thread = threading.Thread(target=do, name=name, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Stopped))
        raise NotDone("too_slow")
    if broke:
        raise NotDone("broke", broke[0])
    return got[0]


class _Stopped(BaseException):
    """Its time is up."""


def _no_database(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
    raise RuntimeError("a run is tried with what is on record of it, and no database")
