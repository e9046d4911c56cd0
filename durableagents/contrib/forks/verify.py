"""Verify forks.

Journals and rows must agree, each repeated call must have been allowed, and reused results must be on record.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from ledger import events as e
from ledger.codec import unpack
from ledger.models import Event
from ledger.verification.runs import EventLine, ReadJournal, compared
from runs.engine.forks import Fork, Place, child_tool
from runs.engine.steps.forks import AGAIN
from runs.engine.tape import payload_of
from runs.engine.tools import ReplayClass
from runs.models import Run


class Forks:
    """Checks one run as a fork, and as an origin of forks."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.fork: Fork | None = None
        self.misplaced = 0
        self.made: list[tuple[int, e.ForkMade]] = []
        self.reused: list[tuple[int, e.AnswerTakenOver]] = []
        self.allowed: set[str | None] = set()
        self.not_allowed: list[tuple[int, str]] = []
        self.is_undoing = False  # from here on the run only undoes effects

    def see(self, line: EventLine) -> None:
        match line.event:
            case e.RunForked() as forked if line.seq in (2, 3, 4) and self.fork is None:
                self.fork = Fork(forked)
            case e.RunForked():
                self.misplaced = line.seq
            case e.ForkMade() as made:
                self.made.append((line.seq, made))
            case e.UndoBegun():
                self.is_undoing = True
            case e.AnswerTakenOver() as taken:
                self.reused.append((line.seq, taken))
            case e.InputAnswered():
                answer = payload_of(line.event).get("answer")
                if isinstance(answer, dict) and answer.get("decision") == AGAIN:
                    self.allowed.add(line.event.slot)
            case _ if self.fork is not None:
                self._note_call(line, self.fork)

    def _note_call(self, line: EventLine, fork: Fork) -> None:
        event = line.event
        tool = child_tool(event.agent) if isinstance(event, e.ChildStarted) else ""
        if isinstance(event, e.ToolInvoked) and event.replay_class != ReplayClass.PURE:
            tool = event.tool
        if tool and not self.is_undoing and fork.fences(tool) and event.slot not in self.allowed:
            self.not_allowed.append((line.seq, event.KIND))

    def problems(self) -> Iterator[str]:
        row = self.journal.row(Run)
        if row is None:
            return  # another check reports this
        if self.misplaced:
            yield f"event {self.misplaced}, RunForked, is not at the journal's beginning"
        forked = self.fork.told if self.fork else None
        yield from compared(
            "the run's row",
            row,
            {
                "forked_from": UUID(forked.origin) if forked else None,
                "fork_how": forked.how if forked else "",
            },
        )
        for seq, made in self.made:
            yield from self._check_fork(seq, made)
        if self.fork is not None:
            yield from self._check_origin(self.fork)
            for seq, kind in self.not_allowed:
                yield f"event {seq}, {kind}: no answer allows this repeated call"
        yield from self._check_reused()

    def _check_fork(self, seq: int, made: e.ForkMade) -> Iterator[str]:
        row = Run.objects.filter(pk=made.fork).first()
        if row is None or (row.forked_from, row.fork_how) != (self.journal.run_id, made.how):
            yield f"event {seq}, ForkMade, names run {made.fork}, whose row does not say so"

    def _check_origin(self, fork: Fork) -> Iterator[str]:
        forked = fork.told
        if forked.effects != len(fork.effects):
            yield f"its first events list {len(fork.effects)} effects, but RunForked says {forked.effects}"
        rows = Event.objects.filter(run_id=forked.origin, kind=e.ForkMade.KIND)
        made = [e.decode(row.clear, unpack(row.sealed)) for row in rows]
        ours = [x for x in made if isinstance(x, e.ForkMade) and x.fork == str(self.journal.run_id)]
        if [(x.how, x.by, x.visit) for x in ours] != [(forked.how, forked.by, forked.visit)]:
            yield f"run {forked.origin}, its origin, does not name it as a fork"

    def _check_reused(self) -> Iterator[str]:
        seen: set[Place] = set()
        known = {x.place: x for x in self.fork.effects} if self.fork else {}
        for seq, taken in self.reused:
            place = taken.of_run, taken.of_slot, taken.of_attempt
            if place not in known:
                yield f"event {seq}, AnswerTakenOver, names an effect that is not in its list"
            elif payload_of(taken).get("result") != known[place].result:
                yield f"event {seq}, AnswerTakenOver, differs from the recorded result of that effect"
            if place in seen:
                yield f"event {seq}, AnswerTakenOver: that effect was reused before"
            seen.add(place)
