"""What a run goes on from at each of its visits, and whether that still stands: what it did before, what it was given
of another run's effects, and what it inherited of the run that it is a fork of. Who undid any of that since did not
ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from psycopg.rows import TupleRow

from ledger import events as e
from runs.engine.forks import Place
from runs.engine.tools import ReplayClass
from runs.journal.reader import BEGUN, TAKEN_BACK, TAKEN_OVER, checked, forked_of, taken_back
from runs.models import Run

_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Gone:
    """What doesn't stand any more, and from which event of the run on it goes on from that."""

    seq: int
    what: str


def gone(run: Run) -> list[Gone]:
    """Everything that a run went on from and that was undone since, or may have been. Raises JournalBroken."""
    line, taken = [(run.pk, _NEVER)], {}
    if run.forked_from is not None:  # nothing stood for a call of any other run
        line = list(_line(run.pk))
        taken = {place: found for each, until in line for place, found in _taken(each, until, run.pk)}
    rows = _taken_back([*(each for each, _ in line), *(UUID(place[0]) for place in taken)])
    if not rows:
        return []
    held = taken | {place: found for each, until in line for place, found in _done(each, until, run.pk)}
    return sorted((held[place] for place in taken_back(rows, held)), key=lambda each: each.seq)


def _line(run_id: UUID) -> Iterator[tuple[UUID, int]]:
    """The run, and those that it is a fork of, each up to the event that the next one begins at."""
    until = _NEVER
    while True:
        yield run_id, until
        told = forked_of(run_id)
        if told is None or told.at_seq == 0:
            return
        run_id, until = UUID(told.origin), told.at_seq


def _taken(run_id: UUID, until: int, of: UUID) -> Iterator[tuple[Place, Gone]]:
    for row in _rows(TAKEN_OVER, run_id):
        event = checked(run_id, row)[1]
        if isinstance(event, e.AnswerTakenOver) and row[0] <= until and event.of_slot:
            here = row[0] if run_id == of else 0
            yield (event.of_run, event.of_slot, event.of_attempt), Gone(here, f"{event.tool} at {event.of_slot}")


def _done(run_id: UUID, until: int, of: UUID) -> Iterator[tuple[Place, Gone]]:
    for row in _rows(BEGUN, run_id, until):
        seq, event = row[0], checked(run_id, row)[1]
        if isinstance(event, e.ToolInvoked) and event.replay_class == ReplayClass.PURE:
            continue
        tool = event.tool if isinstance(event, e.ToolInvoked) else f"a run of {getattr(event, 'agent', '')}"
        here = seq if run_id == of else 0
        yield (str(run_id), event.slot or "", event.attempt), Gone(here, f"{tool} at {event.slot}")


def _taken_back(runs: list[UUID]) -> list[TupleRow]:
    with connection.cursor() as cursor:
        cursor.execute(TAKEN_BACK, [runs])
        return cursor.fetchall()


def _rows(statement: str, *given: UUID | int) -> list[TupleRow]:
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        return cursor.fetchall()
