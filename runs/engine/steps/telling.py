"""Attributes of a run, and the log lines and progress that a node reports.

Log lines and progress aren't journaled, but they are numbered, so that a replay doesn't add them twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runs.engine.attributes import BadAttributes, recorded_attributes, setting
from runs.engine.canonical import printable
from runs.engine.errors import MisusedContext
from runs.engine.journal import Batch, Journal
from runs.engine.runtime import Runtime, log
from runs.engine.visit import Visit


async def set_attributes(visit: Visit, slot: str, given: Mapping[str, Any]) -> None:
    """Record search attributes. Raises MisusedContext, and writes nothing, if an attribute can't be set."""
    arguments = recorded_attributes(given)
    requested_hash = visit.runtime.hasher({"attributes": arguments})
    record = visit.recall(slot, "set_attributes", requested_hash, arguments)
    if record.now.result is not None:
        return
    try:
        event = setting(visit.agent.attributes, given, by="agent", slot=slot, requested_hash=requested_hash)
    except BadAttributes as error:
        raise MisusedContext(f"{visit.graph_id}: {error} ({error.problems[0][2]})") from error
    visit.boundary(await visit.commit(Batch([event])))


LEVELS = ("debug", "info", "warning", "error")
MAX_LINE_LENGTH = 1000  # characters of a line or note
_MAX_PROGRESS = 10**15


@dataclass(frozen=True, slots=True)
class ProgressMessage:
    """A log line with a `level`, or progress with `done`. `n` numbers the messages of one branch of a visit."""

    place: str
    n: int
    at: datetime
    text: str
    level: str = ""
    done: float | None = None
    of: float | None = None

    @property
    def is_progress(self) -> bool:
        return self.done is not None


def tell_line(visit: Visit, message: str, level: str, fields: dict[str, Any]) -> str:
    """Add a line to the run's log, and return it as stored. Raises ValueError for an unknown level."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    whole = f"{message}{''.join(f' {name}={value}' for name, value in fields.items())}"
    text = _cut(whole)
    _tell(visit, "line", {"text": text, "level": level})
    return text


def tell_progress(visit: Visit, done: float, of: float | None, note: str) -> None:
    """Store the progress. Raises ValueError for an invalid number, or if `done` exceeds `of`."""
    for number in (done, *(() if of is None else (of,))):
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not _is_amount(number):
            raise ValueError(f"progress({done!r}, {of!r}): give numbers from 0 on")
    if of is not None and (of == 0 or done > of):
        raise ValueError(
            f"progress({done!r}, {of!r}): done must not exceed the whole, and the whole must be more than 0"
        )
    _tell(visit, "progress", {"text": _cut(note), "done": float(done), "of": None if of is None else float(of)})


def warn_of(runtime: Runtime, journal: Journal, visit: str, problem: str) -> None:
    """Add a warning of the engine to the run's log (once per visit) and to the worker's log."""
    log.warning("run %s: %s", journal.run_id, problem)
    runtime.keep(
        journal.run_id, journal.lease, ProgressMessage(f"{visit}/code", 0, journal.now(), _cut(problem), "warning")
    )


def _tell(visit: Visit, what: str, fields: dict[str, Any]) -> None:
    try:
        place, n = visit.places.next_told(what)
    except MisusedContext:
        return  # from another task or thread: no position that a replay would repeat, so only the worker's log has it
    visit.runtime.keep(
        visit.journal.run_id, visit.journal.lease, ProgressMessage(place, n, visit.journal.now(), **fields)
    )


def _is_amount(number: float) -> bool:
    return 0 <= number <= _MAX_PROGRESS and (isinstance(number, int) or math.isfinite(number))


def _cut(text: Any) -> str:
    whole = str(printable(str(text)[: MAX_LINE_LENGTH + 1]))
    return whole if len(whole) <= MAX_LINE_LENGTH else f"{whole[: MAX_LINE_LENGTH - 1]}…"
