"""Sends nodes' progress messages to the database in the background.
Messages are numbered, so dropped messages leave gaps."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
from psycopg_pool import PoolTimeout

from ledger.actors import Lease
from ledger.contents import stored_text
from ledger.errors import RecordDamaged, first_line
from runs.engine.steps.telling import ProgressMessage
from runs.features import prepare_reading
from runs.journal.libpq import Pool

log = logging.getLogger("runs.journal.telling")

MAX_LINES = 500  # limit of stored messages per run, and of queued ones
MAX_WAITING = 5000  # limit of queued messages of all runs
EVERY_SECONDS = 0.3
_KEEP = "SELECT runs_keep_told(%s, %s, %s, %s::jsonb, %s)"


class Teller:
    """Sends one worker's messages. `on_kept` is called with each run whose messages were stored."""

    def __init__(self, on_kept: Callable[[str], None] = lambda run_id: None) -> None:
        self.on_kept = on_kept
        self._waiting: dict[tuple[str, Lease], tuple[deque[ProgressMessage], dict[str, ProgressMessage]]] = {}
        self._count = 0

    def keep(self, run_id: str, lease: Lease, progress_message: ProgressMessage) -> None:
        """Queue a message. Call this only from the loop's own thread."""
        lines, progress = self._waiting.setdefault((run_id, lease), (deque(maxlen=MAX_LINES), {}))
        if progress_message.is_progress:
            progress[progress_message.place] = progress_message  # only the latest progress is kept
        elif self._count < MAX_WAITING:
            self._count += len(lines) < MAX_LINES
            lines.append(progress_message)  # beyond the limit the oldest are dropped, as in the database

    async def serve(self, pool: Pool) -> None:
        """Send forever."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await self.send(pool)

    async def send(self, pool: Pool) -> None:
        """Send queued messages.
        Messages that can't be stored now are dropped, because no work depends on them."""
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for (run_id, lease), (lines, progress) in waiting.items():
            try:
                async with pool.connection() as link:
                    await prepare_reading(link, [UUID(run_id)])
                    text = json.dumps([_plain(one, UUID(run_id)) for one in (*lines, *progress.values())])
                    await link.execute(_KEEP, [run_id, lease.epoch, lease.token, text, MAX_LINES])
                self.on_kept(run_id)
            except (psycopg.Error, OSError, PoolTimeout, RecordDamaged) as error:
                log.warning("run %s: %s lines were not kept (%s)", run_id, len(lines), first_line(error))


def _plain(progress_message: ProgressMessage, run_id: UUID) -> dict[str, Any]:
    return {
        "place": progress_message.place,
        "n": progress_message.n,
        "at": progress_message.at.isoformat(),
        "text": stored_text(progress_message.text, run_id),
        "level": progress_message.level,
        "done": progress_message.done,
        "of": progress_message.of,
    }
