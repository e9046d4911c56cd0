"""Observers of requests and writes, such as tracing and metrics. Without one, nothing is called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.context import Request

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answered:
    """A request and its response, with times in nanoseconds since the epoch. `path` contains no secrets."""

    request: Request
    method: str
    path: str
    status: int
    began_at: int
    ended_at: int


@dataclass(frozen=True, slots=True)
class WriteTimed:
    """One write to the journal by a worker: how long it took, and its error if it failed.

    Cancelled writes are not reported.
    """

    seconds: float
    error: BaseException | None


# Called in the thread or event loop of the request or write, so it must neither block nor fail.
Observer = Callable[[Any], None]
# Observers by class of event. Callers check `if Answered in installed` first, which avoids any cost without
# observers.
installed: dict[type[Any], tuple[Observer, ...]] = {}


def register(observers: Mapping[type[Any], Observer]) -> None:
    """Add observers to this process, unless they are registered already."""
    for kind, observer in observers.items():
        known = installed.get(kind, ())
        if observer not in known:
            installed[kind] = (*known, observer)


def tell(happened: object) -> None:
    """Call the observers of the event's class. Their errors are only logged, since the event has already happened."""
    for observer in installed.get(type(happened), ()):
        try:
            observer(happened)
        except Exception:
            log.exception("an observer failed")
