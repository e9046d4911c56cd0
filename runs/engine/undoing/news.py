"""What turned up after the plan was made: effects that nobody knew of then, and news about the undos' own calls. Each
is put to a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ledger import events as e
from runs.engine.journal import Effects
from runs.engine.tape import Tape
from runs.engine.undoing.plan import LATE, Effect, Plan


def turned_up(effects: Effects, plan: Plan, visit: str) -> list[Effect]:
    """In the order in which they were told, so that a replay asks about them in the same places, whatever came since.
    `visit` is the one that undoes."""
    return list(_News(plan, f"{visit}/").of(effects))


@dataclass(slots=True)
class _News:
    plan: Plan
    here: str
    tape: Tape = field(default_factory=Tape)
    known: set[tuple[str, int]] = field(default_factory=set)

    def of(self, effects: Effects) -> Iterator[Effect]:
        self.known = {(each.slot, each.attempt) for each in self.plan.all() if each.what != "stays"}
        for event in effects.events:
            self.tape.add(event)
            if event.slot is None or (event.slot, event.attempt) in self.known:
                continue
            why = self._own(event) if event.slot.startswith(self.here) else self._effect(event)
            if why:
                self.known.add((event.slot, event.attempt))
                tool = self.tape.slot(event.slot).what or str(getattr(event, "tool", "")) or "a call"
                yield Effect("ask", event.slot, event.attempt, tool, why=why)

    def _effect(self, event: e.Event) -> str:
        """An effect of before that nobody knew of: told late, or in the moment in which the plan was made."""
        attempt = self.tape.slot(event.slot or "").at(event.attempt)
        is_news = attempt.has_happened and isinstance(attempt.intent, e.ToolInvoked) and attempt.undo is not None
        return LATE if is_news or attempt.is_belied or attempt.is_called_back_late else ""

    def _own(self, event: e.Event) -> str:
        """What somebody tells of a call that undoes, and that belies what is on record of it."""
        if isinstance(event, e.CallbackArrivedLate):
            return "an answer that came late says that this call, which undoes an effect, happened"
        if isinstance(event, e.ToolAnsweredLate) and event.contradicts:
            return (
                f"the worker that made this call, which undoes an effect, tells that it was {event.outcome}; on "
                f"record was {event.contradicts}"
            )
        return ""
