"""The policies in force, cached for a few seconds, and reloaded before a policy stops a call.
The database refuses an intent that was evaluated at another revision (runs/sql/policies.sql), so only reads, which have
no intent, can be evaluated with an outdated cache."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import psycopg
from django.db import connection
from psycopg_pool import PoolTimeout

from ledger.errors import first_line
from runs import features
from runs.backoff import Patience
from runs.engine.policy import Asking, Judged
from runs.features import Policies
from runs.journal.asked import starters
from runs.journal.libpq import Pool

log = logging.getLogger("runs.policies")
FRESH_SECONDS = 5.0
MAX_STARTERS = 1000  # limit per worker
_AWAY = (psycopg.Error, OSError, PoolTimeout)
# The tags of the run and of the runs from which it originated. Only the database writes these rows.
_TAGS = "SELECT coalesce(array_agg(tag ORDER BY tag), '{}') FROM runs_runtag WHERE run_id = %s"


_IS_MIGRATED = "SELECT to_regclass('runs_policyrevision') IS NOT NULL"
_LIVE = "SELECT coalesce((SELECT live FROM runs_policyrevision ORDER BY revision DESC LIMIT 1), 0)"


def refusal() -> str | None:
    """Return why this process must not serve, or None.
    It must not if policies are in force but no app applies them. Raises django.db.Error if that can't be determined."""
    if features.only(lambda each: each.policies) is not None:
        return None
    try:
        with connection.cursor() as cursor:
            cursor.execute(_IS_MIGRATED)
            if cursor.fetchone()[0]:
                cursor.execute(_LIVE)
                if live := cursor.fetchone()[0]:
                    return (
                        f"policies are in force ({live}), but no installed app applies them, so no call could be sent: "
                        "add durableagents.contrib.policies to INSTALLED_APPS again, or retire the policies with it"
                    )
    finally:
        connection.close()
    return None


class Book(Protocol):
    """Policies in the form of the app that provides them."""

    @property
    def is_empty(self) -> bool: ...

    def judge(self, asking: Asking) -> Judged | None: ...

    def needs_tags(self, asking: Asking) -> bool: ...

    def needs_requester(self, asking: Asking) -> bool: ...


class InForce:
    """The engine's port for policies, for one worker.
    Without a `pool` it uses Django's connection, outside the event loop."""

    def __init__(self, policies: Policies | None, pool: Pool | None) -> None:
        self._policies, self._pool = policies, pool
        self._book: Book | None = None
        self._known_at = float("-inf")
        self._reading = asyncio.Lock()
        self._starters: dict[str, str] = {}

    @property
    def version(self) -> int:
        return int(self.may_apply())

    def may_apply(self) -> bool:
        is_known_empty = self._book is not None and self._book.is_empty and self._is_fresh()
        return self._policies is not None and not is_known_empty

    async def judge(self, asking: Asking, *, fresh: bool = False) -> Judged | None:
        if self._policies is None:
            return None
        if fresh or not self._is_fresh():
            async with self._reading:
                if fresh or not self._is_fresh():  # another task may have loaded them meanwhile
                    await self._learn()
        assert self._book is not None
        if self._book.needs_tags(asking):
            (tags,) = await self._row(_TAGS, [asking.run_id])
            asking = replace(asking, tags=tuple(tags))
        if (asking.requester or "").startswith(starters.OF_A_RUN) and self._book.needs_requester(asking):
            asking = replace(asking, requester=await self._starter(asking.run_id))
        return self._book.judge(asking)

    async def _starter(self, run_id: str) -> str | None:
        """Return who started the run's topmost ancestor; None if that can't be determined.
        The answer never changes."""
        if run_id not in self._starters:
            found = starters.starter_of(run_id, await self._rows(starters.STATEMENT, [[run_id]]))
            if found is None:
                return None
            if len(self._starters) >= MAX_STARTERS:
                self._starters.clear()
            self._starters[run_id] = found
        return self._starters[run_id]

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._known_at < FRESH_SECONDS

    async def _learn(self) -> None:
        asked_at = time.monotonic()
        assert self._policies is not None
        (values,) = await self._row(self._policies.statement, [])
        self._book, self._known_at = self._policies.made_of(json.loads(values)), asked_at

    async def _row(self, statement: str, values: Sequence[Any]) -> tuple[Any, ...]:
        (row,) = await self._rows(statement, values)
        return row

    async def _rows(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Repeat the query until the database answers, because nothing may be sent while the policies are unknown."""
        patience = Patience()
        while self._pool is not None:
            try:
                async with self._pool.connection() as link:
                    return await (await link.execute(statement, values)).fetchall()
            except _AWAY as error:
                log.warning("the policies can't be read (%s); trying again", first_line(error))
            await asyncio.sleep(patience.seconds())
        return await asyncio.to_thread(self._rows_aside, statement, values)

    def _rows_aside(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                rows: list[tuple[Any, ...]] = cursor.fetchall()
                return rows
        finally:
            connection.close()
