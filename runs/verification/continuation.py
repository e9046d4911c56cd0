"""Verification of continuations: journals and rows of both runs must agree on each link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from ledger import events as e
from ledger.codec import unpack
from ledger.models import Event
from ledger.verification.runs import EventLine, ReadJournal, compared
from runs.engine.continuation import HANDOFF, RENEWAL, successor_id
from runs.models import Run, Signal

_GOES_ON = {e.RunRenewed.KIND: RENEWAL, e.RunHandedOff.KIND: HANDOFF}


class Continuation:
    """One run's links to its predecessor and its continuation."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.come: e.RunCarriedOn | None = None
        self.gone: e.RunRenewed | e.RunHandedOff | None = None
        self.gone_seq = self.end_seq = 0
        self.told = 0  # number of events that name a continuation
        self.late = 0  # number of an event in the middle of the journal that names a predecessor
        self.carried: list[e.SignalCarried] = []

    def see(self, line: EventLine) -> None:
        match line.event:
            case e.RunCarriedOn() as come if line.seq in (2, 3) and self.come is None:
                self.come = come
            case e.RunCarriedOn():
                self.late = line.seq
            case e.RunRenewed() | e.RunHandedOff() as gone:
                self.gone, self.gone_seq, self.told = gone, line.seq, self.told + 1
            case e.RunCompleted():
                self.end_seq = line.seq
            case e.SignalCarried() as carried:
                self.carried.append(carried)
            case _:
                pass

    def problems(self) -> Iterator[str]:
        row = self.journal.row(Run)
        if row is None:
            return  # reported elsewhere
        if self.late:
            yield f"event {self.late}, RunCarriedOn, is not at the journal's beginning"
        yield from self._about_the_row(row)
        if self.gone is not None:
            yield from self._about_successor(self.gone)
        if self.come is not None:
            yield from self._about_the_origin(self.come)

    def _about_the_row(self, row: Run) -> Iterator[str]:
        come, gone = self.come, self.gone
        yield from compared(
            "the run's row",
            row,
            {
                "came_from": UUID(come.origin) if come else None,
                "first": UUID(come.first) if come else None,
                "turn": come.turn if come else 0,
                "handoffs": come.handoffs if come else 0,
                "goes_on_as": UUID(gone.successor) if gone else None,
                "goes_on_by": _GOES_ON[gone.KIND] if gone else "",
            },
        )

    def _about_successor(self, gone: e.RunRenewed | e.RunHandedOff) -> Iterator[str]:
        if self.told > 1:
            yield f"it names its continuation {self.told} times"
        if self.gone_seq + 1 != self.end_seq:
            yield f"event {self.gone_seq}, {gone.KIND}, is not followed by the run's end"
        if gone.successor != successor_id(str(self.journal.run_id)):
            yield f"event {self.gone_seq}, {gone.KIND}, names a run that can't be its continuation"
            return
        successor = Run.objects.filter(pk=gone.successor).first()
        if successor is None:
            yield f"the run that continues it, {gone.successor}, is missing"
            return
        come = _come(successor.pk)
        if come is None or come.origin != str(self.journal.run_id) or come.how != _GOES_ON[gone.KIND]:
            yield f"run {successor.pk}, which continues it, does not name it"
        if isinstance(gone, e.RunHandedOff) and (born := _born_as(successor.pk)) != gone.agent:
            yield f"it was handed off to {gone.agent}, but its continuation began as {born}"

    def _about_the_origin(self, come: e.RunCarriedOn) -> Iterator[str]:
        if successor_id(come.origin) != str(self.journal.run_id):
            yield f"it claims to continue run {come.origin}, whose continuation would have a different id"
            return
        if not Run.objects.filter(pk=come.origin).exists():
            yield f"the run that it continues, {come.origin}, is missing"
            return
        carried = [
            event
            for row in Event.objects.filter(run_id=come.origin, kind__in=list(_GOES_ON)).only("clear", "sealed")
            if isinstance(event := _read(row), (e.RunRenewed, e.RunHandedOff))
        ]
        if [(x.successor, _GOES_ON[x.KIND]) for x in carried] != [(str(self.journal.run_id), come.how)]:
            yield f"run {come.origin}, which it continues, does not name it"
        before = _come(UUID(come.origin))
        first, turn, handoffs = (before.first, before.turn, before.handoffs) if before else (come.origin, 0, 0)
        if (come.first, come.turn, come.handoffs) != (first, turn + 1, handoffs + (come.how == HANDOFF)):
            yield f"first, turn and handoffs do not match those of run {come.origin}"
        yield from self._about_the_signals(come)

    def _about_the_signals(self, come: e.RunCarriedOn) -> Iterator[str]:
        for carried in self.carried:
            what = f"signal {carried.name} number {carried.n}"
            row = Signal.objects.filter(run_id=come.origin, name=carried.name, n=carried.of_n).first()
            sent: Any = None if row is None else _read(Event.objects.filter(run_id=come.origin, seq=row.seq).first())
            if row is None or not isinstance(sent, (e.SignalReceived, e.SignalCarried)):
                yield f"{what} was not sent to run {come.origin}"
            elif row.taken_by is not None or (sent.by, sent.payload) != (carried.by, carried.payload):
                yield f"{what} differs from the one that run {come.origin} kept"


def _come(run_id: UUID) -> e.RunCarriedOn | None:
    row = Event.objects.filter(run_id=run_id, seq__in=(2, 3), kind=e.RunCarriedOn.KIND).first()
    event = _read(row)
    return event if isinstance(event, e.RunCarriedOn) else None


def _born_as(run_id: UUID) -> str:
    """Return the version with which a run began. It may have been migrated since."""
    event = _read(Event.objects.filter(run_id=run_id, seq=1).first())
    return f"{event.agent}@{event.version}" if isinstance(event, e.RunCreated) else "nothing"


def _read(row: Event | None) -> e.Event | None:
    return None if row is None else e.decode(row.clear, unpack(row.sealed))
