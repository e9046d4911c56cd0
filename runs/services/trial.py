"""Trials of an agent's code on a run's record, in a thread with a time limit.
Also finds the position at which the code is tried."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from django.db import connection, connections

from ledger import events as e
from runs.engine.checkpoints.position import Position, position_of
from runs.engine.journal import Snapshot
from runs.engine.undoing.ending import asked_of
from runs.journal.reader import EVENTS, POSITION_ROWS, cut_of, earlier_of, newest_sound, read
from runs.models import Run

T = TypeVar("T")
TIMEOUT_SECONDS = 10.0
_one_at_a_time = threading.BoundedSemaphore(1)


class Recorded(NamedTuple):
    """A run's first event, its position, earlier events that its calls may need, the number of its journal's last
    event, and whether it will undo its effects and end."""

    created: e.RunCreated
    position: Position
    earlier: list[e.Event]
    seq: int
    will_undo: bool


def position_on_record(run: Run, at_least: int) -> Recorded:
    """Return a run's position, read from its journal in the same way as in a claim.
    `at_least` is the number of events that the journal must have. Raises JournalBroken."""
    with connection.cursor() as cursor:
        cursor.execute(POSITION_ROWS, [run.pk])
        cuts = [stored for row in cursor.fetchall() if (stored := cut_of(row)) is not None]
        cut = newest_sound(str(run.pk), cuts)
        cursor.execute(EVENTS, [run.pk, cut.seq])
        rows = cursor.fetchall()
    created, tail = read(run.pk, rows, cut, at_least=at_least, version=(run.graph_id, run.generation))
    assert isinstance(created, e.RunCreated)
    start = cut.snapshot or Snapshot("", 0, run.generation, "", None)
    position, earlier = position_of(start, tail), earlier_of(run.pk, cut.seq)
    return Recorded(created, position, earlier, rows[-1][0], asked_of(tail) is not None)


class TrialFailed(Exception):
    """The trial has no result. `code` is busy, too_slow or broke; in the last case, `cause` is the exception."""

    def __init__(self, code: str, cause: BaseException | None = None) -> None:
        super().__init__(code)
        self.code, self.cause = code, cause


def run_trial(work: Callable[[], T], name: str) -> T:
    """Run `work` in a thread called `name`, without the database, and return its result.
    Only one trial runs at a time. Raises TrialFailed."""
    if not _one_at_a_time.acquire(timeout=TIMEOUT_SECONDS):
        raise TrialFailed("busy")
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with connections["default"].execute_wrapper(_refuse_database):
                results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            try:
                connections.close_all()
            finally:
                _one_at_a_time.release()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    if thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_TimeIsUp))
        raise TrialFailed("too_slow")
    if errors:
        raise TrialFailed("broke", errors[0])
    return results[0]


class _TimeIsUp(BaseException):
    """Raised in the trial's thread when its time limit is exceeded."""


def _refuse_database(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
    raise RuntimeError("A trial may use only the run's record, not the database.")
