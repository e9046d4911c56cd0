"""The part of the journal in memory that is about other runs: the one that this one goes on as, or began again from."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from ledger import events as e

Place = tuple[str, str, int]
_OF_AN_ESTATE = (e.ChildOf, e.StartPlanned, e.RunCarriedOn, e.AttributesSet, e.ModelsChosen)


class _InMemory(Protocol):
    """What it needs of the journal that it is a part of."""

    run: Any

    def _fence(self) -> None: ...


class MemorySuccession:
    """As `runs.journal.births.Succession`."""

    async def origin(self: _InMemory) -> e.RunCarriedOn | None:
        self._fence()
        return next((event for event in self.run.events if isinstance(event, e.RunCarriedOn)), None)

    async def asked(self: _InMemory, slot: str) -> list[e.Event]:
        self._fence()
        return [x for x in self.run.events if x.slot == slot or (isinstance(x, e.ToolInvoked) and x.grant == slot)]

    async def estate(self: _InMemory) -> list[tuple[int, e.Event]]:
        self._fence()
        numbered = enumerate(self.run.events, start=1)
        return [(seq, x) for seq, x in numbered if isinstance(x, _OF_AN_ESTATE) or any(x is k for k in self.run.kept)]

    async def taken_over(self: _InMemory) -> list[e.AnswerTakenOver]:
        self._fence()
        return [event for event in self.run.events if isinstance(event, e.AnswerTakenOver)]

    async def undone(self: _InMemory, places: Collection[Place]) -> set[Place]:
        """What this run's fork was told was undone in a story about that."""
        self._fence()
        return {place for place in places if place in self.run.undone_elsewhere}
