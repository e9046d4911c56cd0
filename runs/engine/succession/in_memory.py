"""The part of the journal in memory that is about other runs: the one that this one goes on as, or began again from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ledger import events as e
from runs.engine.budget.meter import Meter
from runs.engine.journal import Effects, Heir, Reply
from runs.engine.undoing.plan import KINDS

_OF_AN_ESTATE = (e.ChildOf, e.StartPlanned, e.RunCarriedOn, e.AttributesSet, e.ModelsChosen)


class _InMemory(Protocol):
    """What it needs of the journal that it is a part of."""

    run: Any

    def _fence(self) -> None: ...

    def _reply(self, *, is_done: bool = True) -> Reply: ...

    def _let_go(self, how: Any, events: Sequence[e.Event], *, state: str) -> Reply: ...


class MemorySuccession:
    """As `runs.journal.births.Succession`."""

    async def origin(self: _InMemory) -> e.RunCarriedOn | None:
        self._fence()
        return next((event for event in self.run.events if isinstance(event, e.RunCarriedOn)), None)

    async def estate(self: _InMemory) -> list[tuple[int, e.Event]]:
        self._fence()
        numbered = enumerate(self.run.events, start=1)
        return [(seq, x) for seq, x in numbered if isinstance(x, _OF_AN_ESTATE) or any(x is k for k in self.run.kept)]

    async def effects(self: _InMemory) -> Effects:
        self._fence()
        return Effects([event for event in self.run.events if isinstance(event, KINDS)])

    async def succeed(self: _InMemory, events: Sequence[e.Event], heir: Heir) -> Reply:
        self._fence()
        run = self.run
        left = Meter(run.caps, run.used).left()
        kept = tuple(seq for seq, x in enumerate(run.events, start=1) if any(x is k for k in run.kept))
        told = {event.child for event in run.events if isinstance(event, e.ChildEnded)}
        is_open = run.open_waits() or run.children.keys() - told or (run.inbox and heir.carried_on.how == "renewal")
        if self._reply().stop is not None or is_open or heir.left != left or heir.all_signals != kept:
            return self._reply(is_done=False)
        reply = self._let_go("end", events, state="completed")
        run.heir = heir
        return reply

    async def taken_over(self: _InMemory) -> list[e.AnswerTakenOver]:
        self._fence()
        return [event for event in self.run.events if isinstance(event, e.AnswerTakenOver)]
