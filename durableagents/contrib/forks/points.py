"""Find the visits at which a run can be forked, and its effects after each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection
from psycopg.rows import TupleRow

from ledger import events as e
from ledger.codec import decode, unpack
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.models import Head
from runs import features
from runs.engine.errors import JournalBroken
from runs.engine.forks import Evidence, Fork, ForkRecord, Place, evidence_of
from runs.engine.journal import Snapshot
from runs.engine.tools import ReplayClass
from runs.engine.undo import UNDO_NODE
from runs.journal.reader import (
    BEGUN,
    CUT_AT,
    EVENTS,
    TAKEN_BACK,
    TAKEN_OVER,
    VISITS,
    Cut,
    checked,
    forked_in,
    forked_of,
    newest_sound,
    read,
    taken_back,
)
from runs.models import ENDED, Run
from runs.services import related_runs
from runs.services.calls import tool_here

_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class UndoneEffect:
    """An effect that was undone, and the sequence number of the event that made the run depend on it."""

    seq: int
    what: str


def undone_effects(run: Run) -> list[UndoneEffect]:
    """Return the effects that a run depends on although they were, or may have been, undone. Raises JournalBroken."""
    line, taken = [(run.pk, _NEVER)], {}
    if run.forked_from is not None:  # only a fork reuses calls of other runs
        line = list(_lineage(run.pk))
        taken = {place: found for each, until in line for place, found in _taken(each, until, run.pk)}
    rows = _taken_back([*(each for each, _ in line), *(UUID(place[0]) for place in taken)])
    if not rows:
        return []
    held = taken | {place: found for each, until in line for place, found in _steps_done(each, until, run.pk)}
    return sorted((held[place] for place in taken_back(rows, held)), key=lambda each: each.seq)


def _lineage(run_id: UUID) -> Iterator[tuple[UUID, int]]:
    """Yield the run and its origins, each with the number of its last event that is part of the run's history."""
    until = _NEVER
    while True:
        yield run_id, until
        forked = forked_of(run_id)
        if forked is None or forked.at_seq == 0:
            return
        run_id, until = UUID(forked.origin), forked.at_seq


def _taken(run_id: UUID, until: int, of: UUID) -> Iterator[tuple[Place, UndoneEffect]]:
    for row in _rows(TAKEN_OVER, run_id):
        event = checked(run_id, row)[1]
        if isinstance(event, e.AnswerTakenOver) and row[0] <= until and event.of_slot:
            here = row[0] if run_id == of else 0
            yield (
                (event.of_run, event.of_slot, event.of_attempt),
                UndoneEffect(here, f"{event.tool} at {event.of_slot}"),
            )


def _steps_done(run_id: UUID, until: int, of: UUID) -> Iterator[tuple[Place, UndoneEffect]]:
    for row in _rows(BEGUN, run_id, until):
        seq, event = row[0], checked(run_id, row)[1]
        if isinstance(event, e.ToolInvoked) and event.replay_class == ReplayClass.PURE:
            continue
        tool = event.tool if isinstance(event, e.ToolInvoked) else f"a run of {getattr(event, 'agent', '')}"
        here = seq if run_id == of else 0
        yield (str(run_id), event.slot or "", event.attempt), UndoneEffect(here, f"{tool} at {event.slot}")


def _taken_back(runs: list[UUID]) -> list[TupleRow]:
    with connection.cursor() as cursor:
        cursor.execute(TAKEN_BACK, [runs])
        return cursor.fetchall()


def _rows(statement: str, *given: UUID | int) -> list[TupleRow]:
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        return cursor.fetchall()


MAX_VISITS = 500  # limit of listed visits; any visit can be named
MAX_EVENTS = 20_000  # limit of effects after a point, in a run and its continuations


class RecordNotTrusted(DurableAgentsError):
    """The record that the fork needs can't be trusted."""

    status, code, title = 409, "record-not-trusted", "The record can't be trusted"

    def __init__(self, run: Run, why: object) -> None:
        hint = "Choose another visit, whose record may be sound, or start again from the input."
        super().__init__(f"Run {run.id} can't be forked here: {why}. Nothing was started. {hint}", run=str(run.id))


@dataclass(frozen=True, slots=True)
class Visit:
    """The beginning of a visit. `problem` says why the run can't be forked there."""

    visit: int
    node: str
    seq: int
    at: datetime
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The point of a fork, at the beginning of a visit.

    `fences_all` means that the list of effects may be incomplete.
    """

    visit: Visit
    snapshot: Snapshot
    input: Any
    effects: list[Evidence]
    fences_all: bool


def why_none(run: Run) -> str:
    """Return why a run can't be forked at any visit; "" if it can be forked."""
    if run.is_undoing and run.state not in ENDED:
        return "is undoing its effects, so what it did may be gone in a moment"
    return ""


def visits_of(run: Run) -> list[Visit]:
    """Return the newest visits of a run, in order."""
    with connection.cursor() as cursor:
        cursor.execute(VISITS, [run.pk, MAX_VISITS])
        rows = cursor.fetchall()
    try:
        lost, broken = undone_effects(run), ""
    except JournalBroken as error:
        lost, broken = [], str(error)
    found = [_visit(run, row) for row in rows[::-1]]
    of_all = f"the run {why}" if (why := why_none(run)) else broken
    expired = features.expired_checkpoints(run.pk)
    gone = expired.last_seq if expired is not None else 0
    return [
        replace(x, problem=x.problem or of_all or (str(expired) if x.seq <= gone else _undone_since(lost, x.seq)))
        for x in found
    ]


def _undone_since(lost: Sequence[UndoneEffect], seq: int) -> str:
    named = [each.what for each in lost if each.seq <= seq]
    return f"the state depends on effects that were undone since: {', '.join(named[:5])}" if named else ""


def _visit(run: Run, row: TupleRow) -> Visit:
    try:
        _, event = checked(run.pk, row)
    except JournalBroken as broken:
        return Visit(0, "", row[0], row[2], str(broken))
    assert isinstance(event, e.VisitEntered)
    problem = "here it began to undo its effects" if event.node == UNDO_NODE else ""
    return Visit(event.visit, event.node, row[0], row[2], problem)


def cut_at(run: Run, visit: int) -> ForkPoint:
    """Return the starting point of a fork at a visit.

    Raises InvalidInput for an unknown visit, RecordNotTrusted.
    """
    with connection.cursor() as cursor:
        cursor.execute(CUT_AT, [run.pk, visit])
        cuts = cursor.fetchall()
    if not cuts or cuts[0][2] == UNDO_NODE:
        raise _no_such(run, visit)
    try:
        return _fork_point(run, cuts)
    except JournalBroken as broken:
        raise RecordNotTrusted(run, broken) from broken


def refusal(field: str, problem: str, fix: str) -> InvalidInput:
    """Return an InvalidInput error with the field, the problem and the fix."""
    return InvalidInput(f"{field}: {problem}.", errors=[{"field": field, "problem": problem, "fix": fix}])


def _no_such(run: Run, visit: int) -> InvalidInput:
    listed = visits_of(run)
    known = [each.visit for each in listed if not each.problem]
    has = f"it has {known[0]} to {known[-1]}" if known else "it has entered no node"
    what = "is before its first one" if visit < 1 else "is none of its visits, or where it began to undo"
    expired = features.expired_checkpoints(run.pk)
    kept = [each.visit for each in listed if expired is not None and each.seq > expired.last_seq]
    if kept and 1 <= visit < min(kept):
        what = f"can't be used: {expired}"
    fix = f"{has}; to begin before all of them, start again from its input"
    return refusal("visit", f"{visit} {what}", fix)


def _fork_point(run: Run, cuts: Sequence[TupleRow]) -> ForkPoint:
    cut = newest_sound(str(run.pk), cuts[:1])
    assert cut.snapshot is not None
    rows, created, forked = _read(run, cut)
    point_rows = _point_rows(rows, cut.seq)
    if lost := _undone_since(undone_effects(run), cut.seq):
        raise refusal("visit", lost, "choose an earlier visit")
    effects = [
        *_carried(run, forked, cut.seq),
        *evidence_of(str(run.pk), point_rows, lambda name: tool_here(run, name)),
    ]
    later, is_open = effects_of_continuations(run)
    at = next(row for row in rows if row[0] == cut.seq)
    return ForkPoint(
        visit=Visit(cut.snapshot.visit, cut.snapshot.node, cut.seq, at[2]),
        snapshot=cut.snapshot,
        input=created.payload,
        effects=[*effects, *later],
        fences_all=is_open
        or bool(related_runs.find_related_runs(run))
        or (forked is not None and forked.told.fences_all),
    )


def _read(run: Run, cut: Cut) -> tuple[list[TupleRow], e.Event, Fork | None]:
    """Return the journal's rows from a cut on, verified as when a worker claims the run.

    Raises JournalBroken, InvalidInput for too many.
    """
    last = Head.objects.values_list("seq", flat=True).get(pk=run.pk)
    if last - cut.seq > MAX_EVENTS:
        problem = f"run {run.pk} has {last - cut.seq} events after that point, more than {MAX_EVENTS}"
        raise refusal("visit", problem, "choose a later visit")
    with connection.cursor() as cursor:
        cursor.execute(EVENTS, [run.pk, cut.seq])
        rows = cursor.fetchall()
    created, _ = read(run.pk, rows, cut, at_least=last, version=(run.graph_id, run.generation))
    forked = forked_in(run.pk, rows)
    return rows, created, None if forked is None else Fork(forked)


def _point_rows(rows: Sequence[TupleRow], after: int) -> list[ForkRecord]:
    return [(row[0], moment(row), _event(row)) for row in rows if row[0] > after]


def moment(row: TupleRow) -> str:
    return str(row[2].astimezone(UTC).isoformat(timespec="seconds"))


def _event(row: TupleRow) -> e.Event:
    return decode(bytes(row[7]), unpack(None if row[8] is None else bytes(row[8])))


def _carried(run: Run, forked: Fork | None, seq: int) -> list[Evidence]:
    """Return the effects that a fork inherited from its origin, except those that it reused up to event `seq`."""
    if forked is None:
        return []
    with connection.cursor() as cursor:
        cursor.execute(TAKEN_OVER, [run.pk])
        events = [(row[0], checked(run.pk, row)[1]) for row in cursor.fetchall()]
    passed: set[Place] = {
        (x.of_run, x.of_slot, x.of_attempt) for at, x in events if isinstance(x, e.AnswerTakenOver) and at <= seq
    }
    return [x for x in forked.effects if x.place not in passed]


def effects_of_continuations(run: Run) -> tuple[list[Evidence], bool]:
    """Return the effects of the run's continuations, and whether the run or any of them is still active."""
    effects: list[Evidence] = []
    is_open = run.state not in ENDED
    for successor in run.successors().filter(turn__gt=run.turn) if run.goes_on_as is not None else ():
        rows, *_ = _read(successor, Cut())
        effects += evidence_of(str(successor.pk), _point_rows(rows, 0), lambda name, of=successor: tool_here(of, name))  # type: ignore[misc]
        is_open |= successor.state not in ENDED
    return effects, is_open
