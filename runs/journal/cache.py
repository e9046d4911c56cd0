"""The cache of reads in PostgreSQL.
Best effort: slow answers and invalid or forged rows are logged, and count as misses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection
from psycopg_pool import PoolTimeout

from ledger.chain import microseconds
from ledger.codec import Upload, collecting, pack, unpack
from ledger.codes import is_rows_code, row_code
from ledger.errors import first_line
from ledger.keys import code_key
from runs import features
from runs.engine.content.reads import KeptRead
from runs.journal.large import decoding, upload_all
from runs.journal.libpq import Pool
from runs.models.cached_reads import coded

log = logging.getLogger("runs.journal.reads")

TABLE = "cached_read"
PATIENCE_SECONDS = 2.0
# Limits of the whole cache. Entries that expire first are removed first.
MAX_ROWS = 20_000
MAX_BYTES = 256 * 1024 * 1024
_BATCH = 500
_MAX_WAITING = 200
_FIND = """
    SELECT tool, run_id, slot, at, expires_at, sealed, code FROM runs_cachedread
    WHERE key = %s AND expires_at > clock_timestamp()"""
_KEEP = """
    INSERT INTO runs_cachedread (key, tool, run_id, slot, at, expires_at, size, sealed, code)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (key) DO UPDATE SET tool = excluded.tool, run_id = excluded.run_id, slot = excluded.slot,
        at = excluded.at, expires_at = excluded.expires_at, size = excluded.size, sealed = excluded.sealed,
        code = excluded.code
    WHERE runs_cachedread.at < excluded.at OR runs_cachedread.expires_at <= clock_timestamp()"""
_FORGET_DUE = """
    DELETE FROM runs_cachedread WHERE key IN (
        SELECT key FROM runs_cachedread WHERE expires_at <= statement_timestamp()
        ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED)"""
_FORGET_MOST = """
    DELETE FROM runs_cachedread WHERE key IN (
        SELECT key FROM (
            SELECT key, row_number() OVER w AS n, sum(size) OVER w AS bytes FROM runs_cachedread
            WINDOW w AS (ORDER BY expires_at DESC, key)
        ) AS each WHERE n > %s OR bytes > %s)"""


class ReadCache:
    """One worker's access to the cache."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._keeping: set[asyncio.Task[None]] = set()

    async def find(self, key: bytes) -> KeptRead | None:
        """Return a cached, unexpired read; None for rows that can't be authenticated."""
        row = await self._quickly(self._row(key))
        if row is None:
            return None
        tool, run_id, slot, at, expires_at, sealed, code = row
        coded_fields = coded(key, tool, str(run_id), slot, microseconds(at), microseconds(expires_at), sealed)
        try:
            if is_rows_code(code_key(), TABLE, coded_fields, bytes(code)):
                return KeptRead(await decoding([row], lambda: unpack(sealed)), at, str(run_id), slot)
            problem = "it was not written with this installation's key, or was changed"
        except ValueError as error:
            problem = str(error)
        log.warning("the cache entry of %s, read by run %s, is not taken: %s", tool, run_id, problem)
        return None

    def keep(self, key: bytes, tool: str, kept: KeptRead, lifetime: timedelta) -> None:
        """Store a read in the background. Call this only from the loop's own thread."""
        if len(self._keeping) >= _MAX_WAITING:
            return
        task = asyncio.create_task(self._keep(key, tool, kept, kept.at + lifetime))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def settle(self) -> None:
        """Wait until all pending entries are stored or dropped."""
        await asyncio.gather(*self._keeping, return_exceptions=True)

    async def _keep(self, key: bytes, tool: str, kept: KeptRead, expires_at: datetime) -> None:
        await self._quickly(self._store(key, tool, kept, expires_at))

    async def _store(self, key: bytes, tool: str, kept: KeptRead, expires_at: datetime) -> None:
        run_id = UUID(kept.run_id)
        async with self._pool.connection() as link:
            await features.prepare_reading(link, [run_id])
            uploads: list[Upload] = []
            with collecting(uploads):
                sealed = pack(kept.result, run_id) or pack([], run_id) or b""
            await upload_all(uploads)
            coded_fields = coded(
                key, tool, kept.run_id, kept.slot, microseconds(kept.at), microseconds(expires_at), sealed
            )
            code = row_code(code_key(), TABLE, coded_fields)
            await link.execute(_KEEP, [key, tool, run_id, kept.slot, kept.at, expires_at, len(sealed), sealed, code])

    async def _row(self, key: bytes) -> tuple[Any, ...] | None:
        async with self._pool.connection() as link:
            row = await (await link.execute(_FIND, [key])).fetchone()
            if row is not None:
                await features.prepare_reading(link, [row[1]])
            return row

    async def _quickly(self, asking: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await asyncio.wait_for(asking, PATIENCE_SECONDS)
        except (psycopg.Error, OSError, PoolTimeout, TimeoutError, ValueError) as error:
            log.warning("the cache of reads was not to be had (%s)", first_line(error))
            return None


def retire() -> int:
    """Delete expired entries in batches, and those beyond the limits. Returns the number of rows."""
    count = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(_FORGET_DUE, [_BATCH])
            count += cursor.rowcount
            if cursor.rowcount < _BATCH:
                break
        cursor.execute(_FORGET_MOST, [MAX_ROWS, MAX_BYTES])
        return count + int(cursor.rowcount)


def forget(*, run_id: UUID | None = None, tool: str = "") -> int:
    """Delete the entries of a run or a tool, or all entries. Returns the number of rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM runs_cachedread WHERE (%s::uuid IS NULL OR run_id = %s) AND (%s = '' OR tool = %s)",
            [run_id, run_id, tool, tool],
        )
        return int(cursor.rowcount)
