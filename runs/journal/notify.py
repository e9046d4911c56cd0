"""The doorbell: `LISTEN`/`NOTIFY` tells whoever watches that a run's journal has grown. It carries no content.

The journal is the truth; a ring may come late, twice or never, and a listener catches up by the run's own `seq`. A ring
is never part of the transaction that it reports: `NOTIFY` takes a lock that is held until the commit is durable, so
inside a step's transaction it would make all commits of the database wait for one another.

- `ring(run_id, seq)`: for services, after their transaction's commit.
- `ring_for(person)`: the same of something that is one person's, whose pages may show no run that it belongs to.
- `AsyncBell`: for a worker, which writes many events a second: coalesced, on a connection of its own.
- `Hub`: for the web process: one listening connection, any number of subscribers.
"""

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
from runs.background import kept
from runs.backoff import Patience
from runs.connections import dsn

CHANNEL = "durableagents_live"
# PostgreSQL refuses payloads of 8000 bytes and more.
PAYLOAD_BYTES = 7900
# A ring costs no flush of the log, so a watcher need not wait long for the sake of few of them.
COALESCE_SECONDS = 0.02
# A listener that hears nothing for this long asks the server whether it is still there.
QUIET_SECONDS = 20.0

# A notification survives no crash anyhow, so nobody waits for the disk: a commit with NOTIFY in it would flush the log.
# The moment at the end is for lists (see ticks.py): what rings was committed before it.
_NOTIFY = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s || ',@' || {clock.MOMENT})"
log = logging.getLogger("runs.journal.notify")

Ring = tuple[str, int]


def ring(run_id: UUID, seq: int) -> None:
    """Tell the watchers, after this transaction's commit, that the run's journal has reached `seq`.

    Outside a transaction it is told at once. A ring that fails is logged and lost, which the watchers' fallback reading
    makes good; it never fails the service that rang, whose transaction has committed.
    """
    transaction.on_commit(lambda: notify_after_commit(connection, _NOTIFY, [CHANNEL, f"{run_id}:{seq}"]))


def ring_for(person: int) -> None:
    """Tell one account's lists, after this transaction's commit, that something which is theirs has moved."""
    transaction.on_commit(lambda: notify_after_commit(connection, _NOTIFY, [CHANNEL, mark_of(person)]))


def mark_of(person: int) -> str:
    """What is rung for an account: nothing that `parse`, of whatever version, takes for a run's ring."""
    return f"@{person}:="


def ring_above(parent: UUID | None) -> None:
    """Tell those who watch a run that one of its children is in another state: its own journal has not grown, so they
    are told of no `seq`, and read again."""
    if parent is not None:
        ring(parent, 0)


def notify_after_commit(link: BaseDatabaseWrapper, statement: str, parameters: Sequence[str] = ()) -> None:
    """Send a notification that may be lost: what it tells of is on disk, and whoever misses it looks again within
    seconds.

    It catches its own errors, and doesn't leave that to `on_commit(robust=True)`: Django's handler trips over a partial
    there, and an outage between commit and ring would turn a done thing into an error.
    """
    try:
        with link.cursor() as cursor:
            cursor.execute(statement, list(parameters))
    except Error as error:
        log.warning("a ring was lost: %s", first_line(error))


def ring_many(rings: dict[str, int]) -> None:
    for payload in payloads(rings):
        notify_after_commit(connection, _NOTIFY, [CHANNEL, payload])


def payloads(rings: dict[str, int]) -> Iterator[str]:
    """`run:seq,run:seq,…` in pieces that fit into one notification each."""
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
    """The rings of one notification. What isn't one is skipped: any role of the database may notify."""
    for item in payload.split(","):
        run_id, _, seq = item.partition(":")
        if run_id and seq.isdecimal():
            yield run_id, int(seq)


def moment_of(payload: str) -> int:
    """When a notification was sent, in microseconds by the database's clock; 0 if it doesn't say."""
    return clock.moment_of(payload.rpartition(",@")[2])


class AsyncBell:
    """A worker's bell: `ring()` returns at once; what was rung goes out within 20 ms, the latest `seq` of each run
    once.

    Use as `async with AsyncBell() as bell`. While the database is away rings are kept (one per run) and sent when it is
    back.
    """

    def __init__(self) -> None:
        self._pending: dict[str, int] = {}
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(kept("the bell", self._run), name="bell")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    def ring(self, run_id: UUID | str, seq: int) -> None:
        """From the loop's own thread only."""
        key = str(run_id)
        self._pending[key] = max(seq, self._pending.get(key, 0))
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
    """What one subscriber has not read yet: the latest `seq` of each run, so that a slow reader costs no memory.

    `get()` answers `(run_id, seq)`, or None for *rings may have been missed: read again what you show*. What is rung
    for the account `person`, if one is named, comes as `(mark_of(person), 0)`; what is rung for others comes to nobody.
    """

    def __init__(self, run_id: UUID | str | None, *, person: int | None = None) -> None:
        self.run_id = None if run_id is None else str(run_id)
        self.mark = None if person is None else mark_of(person)
        self._pending: dict[str, int] = {}
        self._must_reread = False
        self._filled = asyncio.Event()

    async def get(self) -> Ring | None:
        await self._filled.wait()
        if self._must_reread:
            # Whoever reads again sees all that was pending too.
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
    """One listening connection for all subscribers of a process. It is open while there are any.

    After every connect, the first too, each subscriber gets a None: rings from before that moment were not heard.
    """

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._listener: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def subscribe(
        self, run_id: UUID | str | None = None, *, person: int | None = None
    ) -> AsyncIterator[Subscription]:
        """Rings of one run, or with None of all; and what is rung for an account."""
        async with self.hearing(Subscription(run_id, person=person)) as subscription:
            yield subscription

    @asynccontextmanager
    async def hearing(self, subscription: S) -> AsyncIterator[S]:
        """Whatever is notified, for a subscription of the caller's own."""
        self._subscriptions.add(subscription)
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(kept("the listener of the pages", self._listen), name="hub")
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
    """What is notified on a channel, for ever, on a connection of its own; None after every connect: what was said
    before was not heard."""
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
