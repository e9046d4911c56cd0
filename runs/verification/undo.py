"""Undoing: of a run that has ended each effect of its plan was seen to, once, and nothing else was; its end says so."""

from __future__ import annotations

from collections.abc import Iterator

from ledger import events as e
from ledger.verification.runs import Line, ReadJournal
from runs.engine.tape import payload_of
from runs.engine.undoing.plan import Effect, Plan
from runs.engine.undoing.visit import told

Of = tuple[str, str, int]
Became = e.EffectUndone | e.EffectLeft
# What may have told of an effect that nobody planned for, or about a call that undoes: a person lets it stand.
_TELL = (e.CallbackReceived, e.CallbackArrivedLate, e.ToolAnsweredLate, e.ToolReturned, e.ToolReconciled)


class Undoing:
    """One run's plan against what became of each of its effects."""

    def __init__(self, journal: ReadJournal) -> None:
        self.plan: Plan | None = None
        self.became: dict[Of, tuple[int, Became]] = {}
        self.by_slot: dict[str, Became] = {}
        self.told: set[tuple[str, int]] = set()
        self.end: tuple[int, e.Event] | None = None
        self.wrong: list[str] = []

    def see(self, line: Line) -> None:
        """Follow the plan, and what became of it."""
        event = line.event
        match event:
            case e.UndoBegun():
                if self.plan is not None:
                    self.wrong.append(f"event {line.seq}, UndoBegun: the run had begun to undo already")
                self.plan = Plan.model_validate(event.payload)
                if len(self.plan.effects) != event.effects:
                    self.wrong.append(f"event {line.seq}, UndoBegun: it tells of another number of effects than it has")
            case e.EffectUndone() | e.EffectLeft():
                self._take(line.seq, event)
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled() if self.plan is not None:
                self.end = line.seq, event
            case _ if isinstance(event, _TELL):
                self.told.add((event.slot or "", event.attempt))

    def _take(self, seq: int, event: Became) -> None:
        of = event.of_run, event.of_slot, event.of_attempt
        named = f"event {seq}, {event.KIND}"
        if self.plan is None:
            self.wrong.append(f"{named}: the run had not begun to undo")
        elif of in self.became:
            self.wrong.append(f"{named}: what became of {_of(of)} is told by event {self.became[of][0]}")
        elif not self._is_meant(of, event):
            self.wrong.append(f"{named}: {_of(of)} was not in the plan")
        self.became.setdefault(of, (seq, event))
        self.by_slot[event.slot or ""] = event

    def _is_meant(self, of: Of, event: Became) -> bool:
        run, slot, attempt = of
        planned = [x for x in self._planned() if (x.slot, x.attempt) == (slot, attempt)]
        # A child that was at work then may have gone on as another run since.
        if any(x.run == run or x.what == "child" for x in planned):
            return isinstance(event, e.EffectLeft) or any(x.what in ("undo", "child", "reopen") for x in planned)
        return isinstance(event, e.EffectLeft) and not run and (slot, attempt) in self.told

    def _planned(self) -> list[Effect]:
        return [] if self.plan is None else [x for x in self.plan.all() if x.what != "stays"]

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        if self.plan is None or self.end is None:
            return
        seq, end = self.end
        for effect in self._planned():
            of = effect.run, effect.slot, effect.attempt
            if effect.what != "child" and of not in self.became:  # a child at work undoes its own, and nothing is told
                yield f"event {seq}, {end.KIND}: nothing tells what became of {_of(of)}, which was to be undone"
        if payload_of(end).get("undo") != told(self.plan, self.by_slot):
            yield f"event {seq}, {end.KIND}: what it says of undoing is not what came of that"


def _of(of: Of) -> str:
    run, slot, attempt = of
    return f"slot {slot}, attempt {attempt}" + (f", of run {run}" if run else "")
