"""The policies in force, as this process read them last.

They are data that administrators change while everything runs. A worker reads them when what it knows is a few seconds
old, and anew before a call is stopped by one. It may be wrong for that long and no call leaves by it: the intent names
the revision that it was judged by, and the database refuses one that is not in force (runs/sql/0060_policies.sql). Only
reads have no intent: they go by what was in force a few seconds before.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import psycopg
from django.db import connection
from psycopg_pool import PoolTimeout

from ledger.errors import first_line
from runs.backoff import Patience
from runs.engine.policy.judgement import Asking, Judged
from runs.journal.libpq import Pool

log = logging.getLogger("runs.policies")
FRESH_SECONDS = 5.0
_AWAY = (psycopg.Error, OSError, PoolTimeout)
_TAGS = "SELECT coalesce((SELECT array_agg(t) FROM runs_tags_of(r.tags) t), '{}') FROM runs_run r WHERE r.id = %s"


class Book(Protocol):
    """Policies, as whoever keeps them reads them."""

    def judge(self, asking: Asking) -> Judged | None: ...

    def needs_tags(self, asking: Asking) -> bool: ...


class Policies:
    """How they are read: `statement` gives them as one JSON document, of which `made_of` makes the book. Whoever keeps
    policies says both; while nobody does there are none."""

    def __init__(self) -> None:
        self.statement = ""
        self.made_of: Callable[[Any], Book] | None = None


class InForce:
    """The engine's port, for one worker. `pool` is its connections; without one they are read over Django's
    connection, off the event loop."""

    def __init__(self, policies: Policies, pool: Pool | None) -> None:
        self._policies, self._pool = policies, pool
        self._book: Book | None = None
        self._known_at = float("-inf")
        self._reading = asyncio.Lock()

    async def judge(self, asking: Asking, *, anew: bool = False) -> Judged | None:
        if self._policies.made_of is None:
            return None
        if anew or not self._is_fresh():
            async with self._reading:
                if anew or not self._is_fresh():  # somebody else may have read them meanwhile
                    await self._learn()
        assert self._book is not None
        if self._book.needs_tags(asking):
            (tags,) = await self._row(_TAGS, [asking.run_id])
            asking = replace(asking, tags=tuple(tags))
        return self._book.judge(asking)

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._known_at < FRESH_SECONDS

    async def _learn(self) -> None:
        asked_at = time.monotonic()
        (told,) = await self._row(self._policies.statement, [])
        assert self._policies.made_of is not None
        self._book, self._known_at = self._policies.made_of(json.loads(told)), asked_at

    async def _row(self, statement: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """Asked until the database answers: while nobody knows what is in force, nothing leaves."""
        patience = Patience()
        while self._pool is not None:
            try:
                async with self._pool.connection() as link:
                    row = await (await link.execute(statement, values)).fetchone()
                assert row is not None
                return row
            except _AWAY as error:
                log.warning("the policies can't be read (%s); trying again", first_line(error))
            await asyncio.sleep(patience.seconds())
        return await asyncio.to_thread(self._row_aside, statement, values)

    def _row_aside(self, statement: str, values: Sequence[Any]) -> tuple[Any, ...]:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                row: tuple[Any, ...] = cursor.fetchone()
                return row
        finally:
            connection.close()
