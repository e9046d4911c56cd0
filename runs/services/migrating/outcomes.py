"""Outcomes of migrations, run by run: a database refusal of one doesn't stop the others.
After a lost connection, the answer still says which runs were moved."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from django.db import DatabaseError, InterfaceError, connection, connections, transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.append import locked_head
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, first_line
from ledger.models import Event
from runs.engine.migrating import Found, Moving, refused
from runs.journal.database_errors import is_refusal, is_transient

T = TypeVar("T")
SECONDS = 10.0
_alone = threading.BoundedSemaphore(1)


class NotDone(Exception):
    """The trial wasn't done: `code` is busy, too_slow or broke, `broke` the exception."""

    def __init__(self, code: str, broke: BaseException | None = None) -> None:
        super().__init__(code)
        self.code, self.broke = code, broke


def aside(work: Callable[[], T], name: str) -> T:
    """Return what `work` returns within the time limit, in a thread called `name`. Raises NotDone."""
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
    """Raised in the thread when its time is up."""


def _no_database(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
    raise RuntimeError("a run is tried with what is on record of it, and no database")


log = logging.getLogger("runs.services.migrating")
_DATABASE = (DatabaseError, InterfaceError, psycopg.Error)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run, or its preview. `how` and `code` are those of `runs/engine/migrating.py`."""

    run: UUID
    how: str
    is_moved: bool = False
    code: str = ""
    why: str = ""
    node: str = ""
    to_node: str = ""
    answered: Sequence[str] = ()
    anew: Sequence[str] = ()
    withdrawn: Sequence[str] = field(default=())
    is_retried: bool = False

    @classmethod
    def of(cls, run_id: UUID, found: Found, *, is_moved: bool = False, is_retried: bool = False) -> Outcome:
        closed = [f"{kind} at {slot}" for slot, _, kind, _ in found.closes]
        return cls(
            run_id,
            found.how,
            is_moved,
            found.code,
            found.why,
            found.at.node,
            found.node,
            list(found.answered),
            list(found.anew),
            closed,
            is_retried,
        )


class Meant(dict[UUID, Outcome]):
    """Outcomes of moves being committed, used if the commit's answer is lost."""


def each(
    runs: Sequence[UUID],
    tried: Callable[[UUID], Outcome],
    moving: Moving,
    *,
    by: Actor | None = None,
    meant: Mapping[UUID, Outcome] | None = None,
) -> list[Outcome]:
    """Return `tried`'s outcome for each run, in order; a database refusal (lock timeout, deadlock) counts for one run.
    If the connection is lost, that run's move `by` an actor is looked up and answered as `meant`; the rest is
    skipped. Previews (`by` None) move nothing."""
    began = None if by is None or not runs else database_now()
    told: list[Outcome] = []
    for n, run_id in enumerate(runs):
        try:
            told.append(tried(run_id))
        except _DATABASE as error:
            if not is_transient(error):
                raise
            why = first_line(error)
            log.warning("moving runs to %s: run %s: %s", moving.to.graph_id, run_id, why)
            if is_refusal(error):
                told.append(_stays(run_id, "busy", f"the database refused it ({why}): nothing was done, ask again"))
                continue
            told.append(_after_the_loss(run_id, moving, by, began, meant or {}))
            rest = "the connection to the database was lost before its turn came: ask again"
            return told + [_stays(other, "not_tried", rest) for other in runs[n + 1 :]]
    return told


def _after_the_loss(
    run_id: UUID, moving: Moving, by: Actor | None, began: datetime | None, meant: Mapping[UUID, Outcome]
) -> Outcome:
    """Return whether the run was moved before the connection was lost; its lock waits for a commit in progress."""
    event = None
    try:
        connection.close()
        if by is not None:
            with transaction.atomic():
                locked_head(run_id)
                rows = Event.objects.filter(run_id=run_id, kind=e.RunMigrated.KIND, at__gte=began)
                events = [e.decode(row.clear) for row in rows.order_by("-seq")[:1]]
            event = next((x for x in events if isinstance(x, e.RunMigrated) and x.by == by.ref), None)
    except DurableAgentsError as gone:
        return _stays(run_id, gone.code, gone.detail)
    except _DATABASE as error:
        if not is_transient(error):
            raise
        connection.close()
        return _stays(run_id, "unknown", "the connection to the database was lost: ask again whether it was moved")
    if event is None or event.to != moving.to.graph_id:
        return _stays(run_id, "lost", "the connection to the database was lost before it was moved: ask again")
    return meant.get(run_id) or Outcome(run_id, event.how, is_moved=True, to_node=event.node)


def _stays(run_id: UUID, code: str, why: str) -> Outcome:
    return Outcome.of(run_id, refused(code, why))
