"""Observers of what was written and answered, such as tracing. Without one, nothing is called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ledger.context import Request
    from ledger.events import Event

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written:
    """Events of a run that were committed. A service knows neither `epoch` nor, except at a start, trace and agent."""

    run_id: str
    events: Sequence[Event]
    epoch: int = 0
    trace_id: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Driven:
    """One claim of a run by a worker, and how it ended: parked, completed, lost, …; empty as it begins."""

    run_id: str
    trace_id: str
    agent: str
    epoch: int
    worker: str
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request and its answer, with nanoseconds since the epoch. `path` has no secrets."""

    request: Request
    method: str
    path: str
    status: int
    began_at: int
    ended_at: int


class Observer(Protocol):
    """Gets what happened, after the commit, in the thread or event loop that did it: it must neither block nor fail."""

    def wrote(self, written: Written) -> None: ...

    def drove(self, driven: Driven) -> None: ...

    def answered(self, answered: Answered) -> None: ...


installed: tuple[Observer, ...] = ()


def register(*observers: Observer) -> None:
    """Add observers to this process, unless they are registered already."""
    global installed
    installed += tuple(each for each in observers if each not in installed)


def wrote(written: Written) -> None:
    for each in installed:
        _tell(each.wrote, written)


def drove(driven: Driven) -> None:
    for each in installed:
        _tell(each.drove, driven)


def answered(answered: Answered) -> None:
    for each in installed:
        _tell(each.answered, answered)


def _tell(hear: Callable[[Any], None], what: Any) -> None:
    """Tell an observer. Its bug is logged, as what it observes has already happened."""
    try:
        hear(what)
    except Exception:
        log.exception("an observer failed")
