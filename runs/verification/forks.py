"""Verification of forks: agreement of journals and rows, a person's word on fenced calls, and answers taken over."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from ledger import events as e
from ledger.codec import unpack
from ledger.models import Event
from ledger.verification.runs import Line, ReadJournal, compared
from runs.engine.forks import Fork, Place, child_tool
from runs.engine.steps.forks import AGAIN
from runs.engine.tape import payload_of
from runs.engine.tools import ReplayClass
from runs.models import Run


class Forks:
    """One run as a fork, and as an origin of forks."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.fork: Fork | None = None
        self.late = 0
        self.made: list[tuple[int, e.ForkMade]] = []
        self.taken: list[tuple[int, e.AnswerTakenOver]] = []
        self.agreed: set[str | None] = set()
        self.unasked: list[tuple[int, str]] = []
        self.is_undoing = False  # from here on it only undoes its own effects

    def see(self, line: Line) -> None:
        match line.event:
            case e.RunForked() as told if line.seq in (2, 3, 4) and self.fork is None:
                self.fork = Fork(told)
            case e.RunForked():
                self.late = line.seq
            case e.ForkMade() as made:
                self.made.append((line.seq, made))
            case e.UndoBegun():
                self.is_undoing = True
            case e.AnswerTakenOver() as taken:
                self.taken.append((line.seq, taken))
            case e.InputAnswered():
                answer = payload_of(line.event).get("answer")
                if isinstance(answer, dict) and answer.get("decision") == AGAIN:
                    self.agreed.add(line.event.slot)
            case _ if self.fork is not None:
                self._leaves(line, self.fork)

    def _leaves(self, line: Line, fork: Fork) -> None:
        event = line.event
        tool = child_tool(event.agent) if isinstance(event, e.ChildStarted) else ""
        if isinstance(event, e.ToolInvoked) and event.replay_class != ReplayClass.PURE:
            tool = event.tool
        if tool and not self.is_undoing and fork.fences(tool) and event.slot not in self.agreed:
            self.unasked.append((line.seq, event.KIND))

    def problems(self) -> Iterator[str]:
        row = self.journal.row(Run)
        if row is None:
            return  # reported elsewhere
        if self.late:
            yield f"event {self.late}, RunForked, does not stand at the journal's beginning"
        told = self.fork.told if self.fork else None
        yield from compared(
            "the run's row",
            row,
            {
                "forked_from": UUID(told.origin) if told else None,
                "fork_how": told.how if told else "",
            },
        )
        for seq, made in self.made:
            yield from self._about_a_fork(seq, made)
        if self.fork is not None:
            yield from self._about_the_origin(self.fork)
            for seq, kind in self.unasked:
                yield f"event {seq}, {kind}: nobody said that it may be done again"
        yield from self._about_what_was_taken()

    def _about_a_fork(self, seq: int, made: e.ForkMade) -> Iterator[str]:
        row = Run.objects.filter(pk=made.fork).first()
        if row is None or (row.forked_from, row.fork_how) != (self.journal.run_id, made.how):
            yield f"event {seq}, ForkMade, names run {made.fork}, whose row does not say so"

    def _about_the_origin(self, fork: Fork) -> Iterator[str]:
        told = fork.told
        if told.effects != len(fork.effects):
            yield f"it was told of {len(fork.effects)} effects, and says {told.effects}"
        rows = Event.objects.filter(run_id=told.origin, kind=e.ForkMade.KIND)
        made = [e.decode(row.clear, unpack(row.sealed)) for row in rows]
        ours = [x for x in made if isinstance(x, e.ForkMade) and x.fork == str(self.journal.run_id)]
        if [(x.how, x.by, x.visit) for x in ours] != [(told.how, told.by, told.visit)]:
            yield f"run {told.origin}, of which it is a fork, does not say so"

    def _about_what_was_taken(self) -> Iterator[str]:
        seen: set[Place] = set()
        known = {x.place: x for x in self.fork.effects} if self.fork else {}
        for seq, taken in self.taken:
            place = taken.of_run, taken.of_slot, taken.of_attempt
            if place not in known:
                yield f"event {seq}, AnswerTakenOver, names an effect that the run was not told of"
            elif payload_of(taken).get("result") != known[place].result:
                yield f"event {seq}, AnswerTakenOver, is not what is on record of that effect"
            if place in seen:
                yield f"event {seq}, AnswerTakenOver: that effect stood for another call already"
            seen.add(place)
