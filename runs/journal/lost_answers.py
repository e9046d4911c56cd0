"""Finds out whether a commit took effect if the database's reply was lost (CP5 of the step protocol).
The worker reclaims its run under a new epoch. This waits for the old backend and fences it off. The worker then checks
whether its events were written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg

from ledger.errors import StaleLease
from ledger.events import Event, encode_clear
from runs.journal.claims import Claim, Worker, reclaim
from runs.journal.database_errors import Refusals, is_transient
from runs.journal.libpq import Pool, transaction

_WRITTEN = (
    "SELECT seq FROM ledger_event WHERE run_id = %s AND seq > %s AND epoch = %s AND clear = %s ORDER BY seq LIMIT 1"
)


def named(events: Sequence[Event]) -> str:
    """Return the events' kinds and slots as text for an operator."""
    return ", ".join(event.KIND if event.slot is None else f"{event.KIND} of slot {event.slot}" for event in events)


@dataclass(frozen=True, slots=True)
class Lost:
    """A commit with an unknown outcome.
    It was sent at `epoch`, and its events should follow event `after`. With `lets_go`, the commit should have released
    the run."""

    pool: Pool
    worker: Worker
    run_id: UUID
    events: Sequence[Event]
    after: int
    epoch: int
    lets_go: bool

    async def find_out(self) -> tuple[int | None, Claim | None]:
        """Return the number of the commit's last event, and the new claim.
        The number is None if the event wasn't written; the claim is None if the commit released the run. Raises
        StaleLease."""
        delay, refusals = 0.05, Refusals(f"run {self.run_id}, finding out whether {named(self.events)} was written")
        while True:
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, 1.0)
            try:
                if self.lets_go and (seq := await self._let_go()) is not None:
                    return seq, None
                try:
                    claimed = await reclaim(self.pool, self.worker, self.run_id)
                except StaleLease:
                    # The lost commit may have released the run. After any other commit we must not continue: an intent
                    # may be recorded, about which the new owner decides.
                    if self.lets_go and (seq := await self._written()) is not None:
                        return seq, None
                    raise
                return await self._written(), claimed
            except (psycopg.Error, OSError) as error:
                if not is_transient(error):
                    raise
                refusals.note(error)

    async def _let_go(self) -> int | None:
        """Return the last event's number if the run was released.
        This is checked before reclaiming, which must not fence off a newer claim of this worker. Waiting for the row
        lock ensures that the old backend has finished."""
        async with self.pool.connection() as connection, transaction(connection):
            await connection.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE", [self.run_id])
            cursor = await connection.execute(_WRITTEN, self._parameters())
            return self._last(await cursor.fetchone())

    async def _written(self) -> int | None:
        """Return the last event's number, if this worker wrote it.
        The epoch decides, because a new owner makes the same calls, but its intent doesn't permit this worker to
        send."""
        async with self.pool.connection() as connection:
            return self._last(await (await connection.execute(_WRITTEN, self._parameters())).fetchone())

    def _last(self, first: tuple[int] | None) -> int | None:
        return None if first is None else first[0] + len(self.events) - 1

    def _parameters(self) -> list[object]:
        return [self.run_id, self.after, self.epoch, encode_clear(self.events[0])]
