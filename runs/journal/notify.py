"""Notifications (`LISTEN`/`NOTIFY`) that a run's journal has new events.
They may be late, duplicated or lost. `NOTIFY` holds a lock until its commit is durable, so inside step transactions it
would serialize all commits of the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

import psycopg
from django.db import Error, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

from ledger import clock
from ledger.errors import first_line
from runs import log_messages
from runs.background import run_forever
from runs.backoff import Patience
from runs.connections import dsn

CHANNEL = "durableagents_live"
# PostgreSQL refuses payloads of 8000 bytes or more.
PAYLOAD_BYTES = 7900
# This can be short, because a notification does not flush the log.
COALESCE_SECONDS = 0.02
# After this time without notifications, a listener checks whether the server is still there.
QUIET_SECONDS = 20.0

# Notifications don't survive a crash anyway, so they don't wait for the disk; a commit with NOTIFY would flush the log.
# The time at the end is for lists (see ticks.py): the changes were committed before it.
_NOTIFY = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s || ',@' || {clock.MOMENT})"
log = logging.getLogger("runs.journal.notify")

Ring = tuple[str, int]


def ring(run_id: UUID, seq: int) -> None:
    """Notify watchers of the journal's new `seq`, after the commit. Failures are only logged."""
    transaction.on_commit(lambda: notify_after_commit(connection, _NOTIFY, [CHANNEL, f"{run_id}:{seq}"]))


def ring_for(person: int) -> None:
    """Notify one account's lists, after this transaction's commit, that one of its items changed."""
    transaction.on_commit(lambda: notify_after_commit(connection, _NOTIFY, [CHANNEL, mark_of(person)]))


def mark_of(person: int) -> str:
    """Return the notification payload for an account. No version of `parse` mistakes it for a run's entry."""
    return f"@{person}:="


def ring_above(parent: UUID | None) -> None:
    """Notify watchers of a parent run that a child's state changed. The `seq` 0 makes them read the run again."""
    if parent is not None:
        ring(parent, 0)


def notify_after_commit(link: BaseDatabaseWrapper, statement: str, parameters: Sequence[str] = ()) -> None:
    """Send a notification that may be lost.
    Errors are caught here, because `on_commit(robust=True)` fails for a partial."""
    try:
        with link.cursor() as cursor:
            cursor.execute(statement, list(parameters))
    except Error as error:
        log.warning("a ring was lost: %s", first_line(error))


def ring_many(rings: dict[str, int]) -> None:
    for payload in payloads(rings):
        notify_after_commit(connection, _NOTIFY, [CHANNEL, payload])


def payloads(rings: dict[str, int]) -> Iterator[str]:
    """Yield `run:seq,run:seq,…` in parts that each fit into one notification."""
    piece = ""
    for run_id, seq in rings.items():
        item = f"{run_id}:{seq}"
        if piece and len(piece) + 1 + len(item) > PAYLOAD_BYTES:
            yield piece
            piece = ""
        piece = f"{piece},{item}" if piece else item
    if piece:
        yield piece


def parse(payload: str) -> Iterator[Ring]:
    """Yield the valid entries of a notification.
    Other entries are skipped, because any database role may send notifications."""
    for item in payload.split(","):
        run_id, _, seq = item.partition(":")
        if run_id and seq.isdecimal():
            yield run_id, int(seq)


def moment_of(payload: str) -> int:
    """Return the time at which a notification was sent, in microseconds on the database's clock. 0 if unknown."""
    return clock.moment_of(payload.rpartition(",@")[2])


class AsyncBell:
    """A worker's notifications of journal growth.
    `ring()` returns at once; the latest `seq` of each run is sent within 20 ms, or after an outage."""

    def __init__(self) -> None:
        self._pending: dict[str, int] = {}
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.rings = 0  # number of all calls of `ring()`; a worker makes one after each commit

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(run_forever("the bell", self._run), name="bell")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    def ring(self, run_id: UUID | str, seq: int) -> None:
        """Queue a notification. Call this only from the loop's own thread."""
        key = str(run_id)
        self._pending[key] = max(seq, self._pending.get(key, 0))
        self.rings += 1
        self._rung.set()

    async def _run(self) -> None:
        patience = Patience()
        away = log_messages.Outage(log, "bell")
        while True:
            try:
                async with await _connect("durableagents bell") as link:
                    away.over()
                    patience.reset()
                    while True:
                        await self._rung.wait()
                        await self._send(link)
                        await asyncio.sleep(COALESCE_SECONDS)
            except (psycopg.Error, OSError) as error:
                away.began(error)
                await asyncio.sleep(patience.seconds())

    async def _send(self, link: psycopg.AsyncConnection) -> None:
        self._rung.clear()
        rings, self._pending = self._pending, {}
        try:
            for payload in payloads(rings):
                await link.execute(_NOTIFY, [CHANNEL, payload])
        except BaseException:
            for run_id, seq in rings.items():
                self.ring(run_id, seq)
            raise


class Subscription:
    """Unread notifications of one subscriber: the latest `seq` of each run.
    `get()` returns `(run_id, seq)` for a run, `(mark_of(person), 0)` for the subscriber's account, or None if
    notifications may have been missed, so that the subscriber must read everything again."""

    def __init__(self, run_id: UUID | str | None, *, person: int | None = None) -> None:
        self.run_id = None if run_id is None else str(run_id)
        self.mark = None if person is None else mark_of(person)
        self._pending: dict[str, int] = {}
        self._must_reread = False
        self._filled = asyncio.Event()

    async def get(self) -> Ring | None:
        await self._filled.wait()
        if self._must_reread:
            # Reading again covers all pending notifications.
            self._must_reread = False
            self._pending.clear()
            self._filled.clear()
            return None
        run_id = next(iter(self._pending))
        seq = self._pending.pop(run_id)
        if not self._pending:
            self._filled.clear()
        return run_id, seq

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Ring | None:
        return await self.get()

    def put(self, run_id: str, seq: int) -> None:
        if self.run_id in (None, run_id):
            self._pending[run_id] = max(seq, self._pending.get(run_id, 0))
            self._filled.set()

    def hear(self, payload: str) -> None:
        for run_id, seq in parse(payload):
            self.put(run_id, seq)
        if self.mark is not None and self.mark in payload.split(","):
            self._pending[self.mark] = 0
            self._filled.set()

    def reread(self) -> None:
        self._must_reread = True
        self._filled.set()


S = TypeVar("S", bound=Subscription)


class Hub:
    """One listening connection for a process's subscribers. Each subscriber receives None on every connect."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._listener: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def subscribe(
        self, run_id: UUID | str | None = None, *, person: int | None = None
    ) -> AsyncIterator[Subscription]:
        """Subscribe to one run, or to all runs if `run_id` is None; and to an account if `person` is given."""
        async with self.hearing(Subscription(run_id, person=person)) as subscription:
            yield subscription

    @asynccontextmanager
    async def hearing(self, subscription: S) -> AsyncIterator[S]:
        """Deliver all notifications to the caller's own subscription, while the context is open."""
        self._subscriptions.add(subscription)
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(run_forever("the listener of the pages", self._listen), name="hub")
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            if not self._subscriptions and self._listener is not None:
                self._listener.cancel()
                self._listener = None

    async def _listen(self) -> None:
        async for payload in heard(CHANNEL, name="live"):
            for subscription in list(self._subscriptions):
                if payload is None:
                    subscription.reread()
                else:
                    subscription.hear(payload)


async def heard(channel: str, *, name: str) -> AsyncIterator[str | None]:
    """Yield the notifications of a channel forever, and None on every connect.
    This uses a connection of its own."""
    patience, away = Patience(), log_messages.Outage(log, name)
    while True:
        try:
            async with await _connect(f"durableagents {name}") as link:
                await link.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                away.over()
                patience.reset()
                yield None
                while True:
                    async for notification in link.notifies(timeout=QUIET_SECONDS):
                        yield notification.payload
                    await link.execute("SELECT 1")
        except (psycopg.Error, OSError) as error:
            away.began(error)
            await asyncio.sleep(patience.seconds())


async def _connect(name: str) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(dsn(name=name), autocommit=True)


hub = Hub()
