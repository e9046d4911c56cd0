"""Views of a run's recorded state.
Each view is an author's function of that state, which runs in its own thread with a time limit and without the
database. Only a few run at once, so a function that never ends blocks nothing but views."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import connections

from ledger.errors import Busy, DurableAgentsError
from runs.engine.canonical import plain
from runs.engine.errors import describe_error
from runs.engine.messages import View
from runs.services.lifecycle import find
from runs.services.messages.sending import NotTaken, agent_of, state_of

SECONDS = 2.0
MAX_AT_ONCE = 2
_rooms = threading.BoundedSemaphore(MAX_AT_ONCE)


class ViewFailed(DurableAgentsError):
    """The author's function failed."""

    status, code, title = 500, "view-failed", "The view failed"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"View {name} failed on this run's recorded state: {problem}. The run is unchanged.")


class ViewTooSlow(DurableAgentsError):
    """The author's function took too long."""

    status, code, title = 504, "view-too-slow", "The view took too long"

    def __init__(self, name: str) -> None:
        super().__init__(f"View {name} took more than {SECONDS:g} s and was stopped. The run is unchanged.")


class _Stopped(BaseException):
    """Raised in the function's thread when its time limit is exceeded."""


def read(run_id: UUID, name: str) -> Any:
    """Return a view of a run's recorded state as plain data.
    Raises NotFound, NotTaken, RecordDamaged, Busy, ViewFailed, ViewTooSlow, UnknownAgent, UnknownVersion."""
    run = find(run_id)
    agent = agent_of(run)
    view = agent.views.get(name)
    if view is None:
        raise NotTaken(run.graph_id, "view", name, sorted(agent.views))
    state = state_of(run, agent)
    return in_time(view.name, lambda: _answered(view, state))


def _answered(view: View, state: Any) -> Any:
    given = view.function(state)
    return plain(given if isinstance(given, view.answers) else view.answers.model_validate(given))


def in_time(name: str, ask: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Return the result of an author's function, which has a limit of `seconds` and no database.
    Raises Busy, ViewFailed, ViewTooSlow."""
    if not _rooms.acquire(timeout=SECONDS):
        raise Busy("Other views are being evaluated")
    got: list[Any] = []
    broke: list[BaseException] = []

    def work() -> None:
        try:
            with connections["default"].execute_wrapper(_no_database):
                got.append(ask())
        except BaseException as error:
            broke.append(error)
        finally:
            connections.close_all()
            _rooms.release()

    thread = threading.Thread(target=work, name=f"view {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Stopped))
        raise ViewTooSlow(name)
    if broke:
        raise ViewFailed(name, describe_error(broke[0]))
    return got[0]


def _no_database(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
    raise RuntimeError("a view may read only the state that it is given, not the database")
