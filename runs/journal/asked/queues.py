"""The queues, and the role in charge of each, cached per process.
They are reloaded with each web request, and elsewhere after a few seconds. The cache authorizes nothing. For a row that
our processes didn't write, nobody is in charge."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db import connection
from psycopg_pool import PoolTimeout

from ledger.errors import first_line
from ledger.web.roles import FIXED, learn_roles
from runs import features
from runs.backoff import Patience
from runs.engine.errors import DefinitionError
from runs.engine.gating.proof import Threshold, threshold_in
from runs.engine.gating.timing import QueueTiming
from runs.journal.libpq import Pool

log = logging.getLogger("runs.queues")
FRESH_SECONDS = 5.0
NOBODY = ""  # role in charge of a queue whose row our processes didn't write
_AWAY = (psycopg.Error, OSError, PoolTimeout)


@dataclass(frozen=True, slots=True)
class Facts:
    """Queues as they were read at one time (`at`: on the database's clock, in microseconds)."""

    at: int = 0
    queues: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    roles: frozenset[str] = frozenset()


def _thresholds(rows: Sequence[Sequence[Any]]) -> dict[str, Threshold]:
    """Return the thresholds by queue.
    A threshold that can't be read was tampered with, so it is left out, and nobody can decide at its queue."""
    found: dict[str, Threshold] = {}
    for name, _, _, proof, _ in rows:
        with suppress(DefinitionError, ValueError, RecursionError):
            threshold = threshold_in(json.loads(proof)) if proof is not None else None
            found |= {} if threshold is None else {name: threshold}
    return found


def _rules() -> features.QueueTimings | None:
    return features.only(lambda each: each.queue_timings)


class Queues(Mapping[str, str]):
    """The cache of queues: maps each queue, open or closed, to the role in charge of it."""

    def __init__(self) -> None:
        self._facts = Facts()
        self._known_at = float("-inf")
        self._timings: Mapping[str, QueueTiming] = {}
        self._timed_at = float("-inf")
        self._lock = threading.Lock()

    @property
    def source(self) -> features.Queues:
        """Return the feature that reads queues. Raises LookupError if no app provides queues."""
        if (source := features.only(lambda each: each.queues)) is None:
            raise LookupError("no app provides queues: add `approvals` to INSTALLED_APPS")
        return source

    @property
    def statement(self) -> str:
        """Return the statement that selects queues and their rules about time.
        Only workers, which open questions, read the rules."""
        rules = _rules()
        timings = "NULL" if rules is None else rules.statement
        return f"SELECT ({self.source.statement} || jsonb_build_object('timing', {timings}))::text"

    def learn(self, value: Any) -> None:
        """Store a document that was just read, unless it is older than the stored one."""
        source, value = self.source, json.loads(value) if isinstance(value, str) else value
        ours = {name: role for name, role, _, _, row in value["queues"] if source.is_ours(row)}
        facts = Facts(
            int(value["at"]),
            {name: (ours.get(name, NOBODY), is_open) for name, _, is_open, *_ in value["queues"]},
            _thresholds(value["queues"]),
            frozenset(value["roles"]),
        )
        timings = None
        if "timing" in value:
            timings = {} if (rules := _rules()) is None else rules.read(value["timing"])
        with self._lock:
            if facts.at >= self._facts.at:
                self._facts, self._known_at = facts, time.monotonic()
                learn_roles(ours.values())
                if timings is not None:
                    self._timings, self._timed_at = timings, self._known_at

    def forget(self) -> None:
        """Discard all cached data, so that the next access reloads it."""
        with self._lock:
            self._facts, self._known_at = Facts(), float("-inf")
            self._timings, self._timed_at = {}, float("-inf")
            learn_roles(())

    def is_fresh(self) -> bool:
        return time.monotonic() - self._known_at < FRESH_SECONDS

    def is_timed(self) -> bool:
        """Return whether the rules about time are recent. They may be outdated, because pages don't load them."""
        return time.monotonic() - self._timed_at < FRESH_SECONDS

    def timing_of(self, name: str) -> QueueTiming | None:
        """Return the queue's rules about time; None if no app provides such rules."""
        rules = _rules()
        return None if rules is None else self._timings.get(name, rules.default)

    def now(self) -> Facts:
        """Return queues that were read at most a few seconds ago."""
        if not self.is_fresh():
            self.read()
        return self._facts

    def read(self) -> None:
        """Load the queues from the database."""
        with connection.cursor() as cursor:
            cursor.execute(self.statement)
            self.learn(cursor.fetchone()[0])

    @property
    def last(self) -> Facts:
        return self._facts

    def is_open(self, name: str) -> bool:
        return self.now().queues.get(name, ("", False))[1]

    def __getitem__(self, name: str) -> str:
        return self.now().queues[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.now().queues))

    def __len__(self) -> int:
        return len(self.now().queues)


# The cache of this process.
QUEUES = Queues()


class QueueNames(Collection[str]):
    """The names to which questions may be addressed: open queues and, with `has_roles`, roles.
    Without a `pool` they are read over Django's connection."""

    def __init__(self, queues: Queues, *, has_roles: bool, pool: Pool | None = None) -> None:
        self._queues, self._has_roles, self._pool = queues, has_roles, pool

    def _names(self) -> frozenset[str]:
        facts = self._queues.last
        open_ = frozenset(name for name, (_, is_open) in facts.queues.items() if is_open)
        in_charge = {role for role, _ in facts.queues.values()} - {NOBODY}
        return open_ | facts.roles | FIXED | in_charge if self._has_roles else open_

    def threshold(self, queue: str) -> Threshold | None:
        """Return the queue's threshold for proof, as of the last load. It is checked again at each decision."""
        return self._queues.last.thresholds.get(queue)

    async def learn(self, name: str) -> None:
        """Make sure that the cache is recent, and reload it if it lacks this name."""
        if not (self._queues.is_fresh() and self._queues.is_timed() and name in self):
            await self._read()

    def timing_of(self, name: str) -> QueueTiming | None:
        """Return the queue's rules about time. The caller must have called `learn` just before."""
        return self._queues.timing_of(name)

    async def _read(self) -> None:
        pool, patience = self._pool, Patience()
        while pool is not None:
            try:
                async with pool.connection() as link:
                    row = await (await link.execute(self._queues.statement)).fetchone()
                assert row is not None
                self._queues.learn(row[0])
                return
            except _AWAY as error:
                log.warning("the queues can't be read (%s); trying again", first_line(error))
            await asyncio.sleep(patience.seconds())
        await asyncio.to_thread(self._read_aside)

    def _read_aside(self) -> None:
        try:
            self._queues.read()
        finally:
            connection.close()

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())
