"""A worker's cache of certificates: read again when older than a few seconds, and at each unknown outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime

import psycopg
from django.conf import settings
from psycopg_pool import PoolTimeout

from ledger.errors import first_line
from runs.backoff import Patience
from runs.certification.results import NEWEST, Found, about, found_in, standing_of
from runs.engine.certification import Certificates, Standing
from runs.engine.fingerprint import tool_digest
from runs.engine.tools import Tool
from runs.journal.libpq import Pool

log = logging.getLogger("runs.certification")

FRESH_SECONDS = 5.0
_AWAY = (psycopg.Error, OSError, PoolTimeout)


class KnownProbes(Certificates):
    """One worker's knowledge of what probes found."""

    def __init__(self, pool: Pool) -> None:
        self.policy = settings.DURABLEAGENTS.uncertified_tools
        self._pool = pool
        self._found: list[Found] = []
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        # What was seen to be unsafe, by what the tool is made of. A database that was brought back from before may not
        # know of it: the stricter word stands until a later probe takes it back.
        self._unsafe: dict[str, tuple[datetime, Standing]] = {}

    async def standing(self, agent: str, tool: Tool, *, is_fresh: bool = False) -> Standing:
        await self._read(time.monotonic() if is_fresh else time.monotonic() - FRESH_SECONDS)
        elapsed = time.monotonic() - self._read_at
        now = standing_of(self._found, agent, tool, elapsed=elapsed)
        newest = about(self._found, agent, tool)
        made_of = tool_digest(tool)
        earlier = self._unsafe.get(made_of)
        if earlier is not None and (newest is None or newest.at < earlier[0]):
            return earlier[1]
        self._unsafe.pop(made_of, None)
        if (now.is_unsafe or now.is_denier) and newest is not None:
            self._unsafe[made_of] = (newest.at, now)
        return now

    async def _read(self, since: float) -> None:
        """Know what was on record at that moment (by this process's clock) or later, however long the database is away:
        without knowing nothing is sent."""
        patience = Patience()
        while self._read_at < since:
            async with self._reading:
                if self._read_at >= since:
                    return
                asked_at = time.monotonic()
                try:
                    async with self._pool.connection() as link:
                        rows = await (await link.execute(NEWEST)).fetchall()
                    self._found, self._read_at = found_in(rows), asked_at
                    return
                except _AWAY as error:
                    log.warning("what probes found can't be read (%s); trying again", first_line(error))
            await asyncio.sleep(patience.seconds())
