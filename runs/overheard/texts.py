"""The worker's side of live output.
It sends the text of each subscribed model request a few times a second, separately from the steps. Without a
subscriber, a request costs one query of an empty table. Text that the database refuses is dropped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import psycopg
from psycopg_pool import PoolTimeout

from ledger.actors import Lease
from ledger.contents import stored_text
from ledger.errors import RecordDamaged, first_line
from runs.engine.canonical import printable
from runs.features import prepare_reading
from runs.journal.libpq import Pool

log = logging.getLogger("runs.overheard.texts")

EVERY_SECONDS = 0.3
LOOK_SECONDS = 0.25  # limit of a request's delay for finding out whether there are subscribers
MAX_CHARACTERS = 6000  # only the end of a longer text is sent
MAX_TEXTS = 200  # limit per worker at the same time
# A finished text is shown for a moment longer, until the answer is on record.
LINGER_SECONDS = 2.0
_IS_HEARD = "SELECT 1 FROM runs_listener WHERE run_id = %s AND until > clock_timestamp()"
# Stored only while there are subscribers, and only by the worker that has the run.
_TELL = """
INSERT INTO runs_overheard (run_id, slot, attempt, epoch, text, characters, at)
SELECT %(run)s, %(slot)s, %(attempt)s, %(epoch)s, %(text)s, %(characters)s, clock_timestamp()
WHERE EXISTS (SELECT 1 FROM runs_listener WHERE run_id = %(run)s AND until > clock_timestamp())
  AND EXISTS (SELECT 1 FROM ledger_head WHERE run_id = %(run)s AND epoch = %(epoch)s AND lease = %(lease)s)
ON CONFLICT (run_id, slot) DO UPDATE SET attempt = excluded.attempt, epoch = excluded.epoch, text = excluded.text,
  characters = excluded.characters, at = excluded.at
"""
_FORGET = "DELETE FROM runs_overheard WHERE run_id = %s AND slot = %s AND epoch = %s"


class Text:
    """The answer so far to one request."""

    def __init__(self, run_id: str, lease: Lease, slot: str, attempt: int) -> None:
        self.run_id, self.lease, self.slot, self.attempt = run_id, lease, slot, attempt
        self.end, self.characters = "", 0
        self.has_grown = False
        self.over_at: float | None = None

    def hear(self, more: str) -> None:
        self.end = (self.end + more)[-MAX_CHARACTERS:]
        self.characters += len(more)
        self.has_grown = True


class Texts:
    """The live texts of one worker's model requests."""

    def __init__(self) -> None:
        self._texts: list[Text] = []
        self._pool: Pool | None = None

    @asynccontextmanager
    async def overhear(
        self, run_id: str, lease: Lease, slot: str, attempt: int
    ) -> AsyncIterator[Callable[[str], None] | None]:
        """Yield a function to which the request's text can be passed as it arrives.
        Yield None instead if there is no subscriber, or if the worker has too many texts."""
        if len(self._texts) >= MAX_TEXTS or not await self._is_heard(run_id):
            yield None
            return
        text = Text(run_id, lease, slot, attempt)
        self._texts.append(text)
        try:
            yield text.hear
        finally:
            text.over_at = time.monotonic() + LINGER_SECONDS

    async def serve(self, pool: Pool) -> None:
        """Send texts forever."""
        self._pool = pool
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            if self._texts:
                await self.send(pool)

    async def send(self, pool: Pool) -> None:
        """Send texts that have grown, and delete those whose requests have ended."""
        over = [text for text in self._texts if text.over_at is not None and text.over_at <= time.monotonic()]
        grown = [text for text in self._texts if text.has_grown]
        self._texts = [text for text in self._texts if text not in over]
        try:
            async with pool.connection(timeout=1.0) as link:
                for text in grown:
                    text.has_grown = False
                    await prepare_reading(link, [UUID(text.run_id)])
                    await link.execute(_TELL, _values(text))
                for text in over:
                    await link.execute(_FORGET, [text.run_id, text.slot, text.lease.epoch])
        except (psycopg.Error, OSError, PoolTimeout, RecordDamaged) as error:
            log.info("what models say was not shown for a moment (%s)", first_line(error))

    async def _is_heard(self, run_id: str) -> bool:
        if self._pool is None:
            return False
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._pool.connection(timeout=LOOK_SECONDS) as link:
                return await (await link.execute(_IS_HEARD, [run_id])).fetchone() is not None
        except (psycopg.Error, OSError, PoolTimeout, TimeoutError):
            return False


def _values(text: Text) -> dict[str, object]:
    return {
        "run": text.run_id,
        "slot": text.slot,
        "attempt": text.attempt,
        "epoch": text.lease.epoch,
        "lease": text.lease.token,
        "text": stored_text(str(printable(text.end)), UUID(text.run_id)),
        "characters": text.characters,
    }
