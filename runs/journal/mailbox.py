"""A run's messages in the PostgreSQL journal: reading the oldest unanswered one, and answering it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from ledger.append import lines
from ledger.codec import Upload, collecting
from ledger.events import Event, MessageReceived, ModelsChosen, SignalCarried, SignalReceived
from runs.engine.journal import Reply
from runs.journal.lookups import Lookups


class _Commits(Protocol):
    seq: int
    _id: UUID
    _actor: str
    _uploads: list[Upload]
    _lookups: Lookups

    def _lines(self, events: Sequence[Event]) -> tuple[str, list[Any]]: ...

    async def _commit(self, events: Sequence[Event], statement: str, values: list[Any]) -> Reply: ...


class Mailbox:
    """The part of the `Journal` port for messages, signals, questions and chosen models."""

    def _lines(self: _Commits, events: Sequence[Event]) -> tuple[str, list[Any]]:
        """Return events as the next lines of the journal.
        Payloads that must first be stored outside the database are added to the uploads."""
        with collecting(self._uploads):
            return lines(events, self._id, self.seq)

    async def models(self: _Commits) -> Sequence[ModelsChosen]:
        return await self._lookups.models()

    async def signal(self: _Commits, name: str, n: int) -> SignalReceived | SignalCarried:
        return await self._lookups.signal(name, n)

    async def asked(self: _Commits, slot: str) -> Sequence[Event]:
        return await self._lookups.asked(slot)

    async def inbox(self: _Commits) -> MessageReceived | None:
        return await self._lookups.inbox()

    async def answer(
        self: _Commits, n: int, outcome: str, events: Sequence[Event], *, waits: Sequence[UUID] = ()
    ) -> Reply:
        written, values = self._lines(events)
        statement = f"SELECT runs_answer_message(%s, %s, %s, %s, {written}, %s, %s, %s::uuid[])"
        return await self._commit(events, statement, [self._actor, *values, n, outcome, list(waits)])
