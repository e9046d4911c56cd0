"""The journal in PostgreSQL: the hot path. Each method is one call of one SQL function, so one round trip and one commit.

After an answer that never came (the connection broke while a commit was under way) nothing is assumed: the worker takes its own run
again under a new epoch, which waits for the old backend and fences it off, then reads whether its events are there, and only if they
aren't writes them again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from ledger.actors import Lease
from ledger.append import facts, lines
from ledger.errors import StaleLease
from ledger.events import Event, SignalReceived, encode_clear
from runs import failpoints
from runs.dsn import Patience
from runs.engine.errors import JournalBroken
from runs.engine.journal import NOTHING_USED, Entry, GateOpening, History, How, Reply, Snapshot, Usage, WaitSpec
from runs.history import EVENTS, SIGNAL, STANDING, checked, newest_sound, read, with_cut
from runs.notices import first_line
from runs.statements import Connection, Pool, one_row, reply_of, turns
from runs.trouble import Refusals, is_transient, patiently, translated
from runs.waits import gate_statement, on_withdraw

log = logging.getLogger("runs.store")

_WAIT = "ROW(%s, %s, %s, %s, %s, %s, %s, %b)"
_USAGE = "ROW(%s, %s, %s, %s, %s)"
CLAIM = "SELECT * FROM runs_claim(%s, %s, %s, %s::text[], %s, %s)"
RECLAIM = "SELECT * FROM runs_reclaim(%s, %s, %s, %s)"
_READY = "SELECT id FROM runs_run WHERE ready_at <= clock_timestamp() AND graph_id = ANY(%s)"



@dataclass(frozen=True, slots=True)
class Worker:
    """Who claims: the incarnation of the process, and where it runs."""

    id: UUID
    host: str
    pid: int

    @property
    def ref(self) -> str:
        """How ledger rows name it."""
        return f"worker:{self.id}"

    @property
    def ascii_host(self) -> str:
        """The host's name as the claim's event, which SQL writes, can hold it: SQL's JSON escapes less than Python's."""
        return re.sub(r"[^ -~]", "?", self.host)


@dataclass(frozen=True, slots=True)
class Claim:
    """A run in a worker's hands."""

    run_id: UUID
    graph_id: str
    generation: int
    trace_id: str
    created_by: str
    epoch: int
    lease: UUID
    seq: int
    at: datetime
    is_pause_requested: bool
    is_cancel_requested: bool
    is_on_hold: bool
    is_solo: bool

    @property
    def reply(self) -> Reply:
        """The claim as an answer of the journal."""
        return Reply(self.seq, self.at, self.is_pause_requested, self.is_cancel_requested, self.is_on_hold)


def _say(run_id: UUID, problem: str) -> None:
    log.error("run %s: can't be claimed: %s", run_id, problem)


async def claim(
    pool: Pool, worker: Worker, graph_ids: Sequence[str], limit: int, *, solo: bool = False, on_damaged: Callable[[UUID, str], None] = _say
) -> list[Claim]:
    """Take up to `limit` of the best ready runs of these agent versions; with `solo`, of those that must be driven alone. A run that
    the database refuses to give is told to `on_damaged`, with what it says."""
    async with pool.connection() as connection:
        if failpoints.is_armed("CP9"):
            ready = await (await connection.execute(_READY, [list(graph_ids)])).fetchall()
            for (run_id,) in ready:
                failpoints.hit("CP9", run=str(run_id))
            if not ready:  # one that becomes so now must not be claimed past the point
                return []
        cursor = await connection.execute(CLAIM, [worker.id, worker.ascii_host, worker.pid, list(graph_ids), limit, solo])
        rows = await cursor.fetchall()
    for run_id, *_, problem in rows:
        if problem is not None:
            on_damaged(run_id, problem)
    return [Claim(*row) for *row, problem in rows if problem is None]


async def reclaim(pool: Pool, worker: Worker, run_id: UUID) -> Claim:
    """Take a run of this worker's own again. Raises StaleLease when it is no longer this worker's."""
    async with pool.connection() as connection:
        try:
            cursor = await connection.execute(RECLAIM, [run_id, worker.id, worker.ascii_host, worker.pid])
        except psycopg.Error as error:
            raise translated(error) from error
        row = await cursor.fetchone()
        assert row is not None
        return Claim(*row)


class PgJournal:
    """The `Journal` port over PostgreSQL, for one claimed run."""

    def __init__(
        self,
        pool: Pool,
        worker: Worker,
        claimed: Claim,
        *,
        on_write: Callable[[str, int], None] = lambda run_id, seq: None,
    ) -> None:
        self.pool, self.worker, self.on_write = pool, worker, on_write
        self.run_id = str(claimed.run_id)
        self._id = claimed.run_id
        # One commit at a time: finding out what became of one takes the run again, and would fence off another in flight.
        self._committing = asyncio.Lock()
        self._turns = turns(pool)
        self._actor = worker.ref
        self._take(claimed)

    def _take(self, claimed: Claim) -> None:
        self.lease, self._token = Lease(claimed.epoch, claimed.lease), str(claimed.lease)
        self._graph_id = claimed.graph_id
        self._note(claimed.reply)

    def _note(self, reply: Reply) -> Reply:
        self.seq, self._reply, self._heard = reply.seq, reply, time.monotonic()
        return reply

    def now(self) -> datetime:
        """The database's time of the last reply, moved on by this process's monotonic clock."""
        return self._reply.at + timedelta(seconds=time.monotonic() - self._heard)

    # --- writing ---

    async def intend(
        self,
        events: Sequence[Event],
        *,
        entry: Entry | None = None,
        grant: tuple[str, str] | None = None,
        wait: WaitSpec | None = None,
    ) -> Reply:
        (told, values), (booked, more), (opened, asked) = self._lines(events), facts([entry] if entry else []), _opening(wait)
        statement = f"SELECT * FROM runs_intend(%s, %s, %s, %s, {told}, {booked}, %s, %s, {opened})"
        values = [self._actor, *values, *more, *(grant or (None, None)), *asked]
        return await self._commit(events, lambda: (statement, [*self._fence(), *values]))

    async def record(
        self, events: Sequence[Event], *, entries: Sequence[Entry] = (), wait: WaitSpec | None = None, gate: GateOpening | None = None,
        usage: Usage = NOTHING_USED, snapshot: Snapshot | None = None,
    ) -> Reply:  # fmt: skip
        events, cut, kept = with_cut(events, snapshot)
        (told, values), (booked, more), (opened, asked) = self._lines(events), facts(entries), _opening(wait)
        used = [usage.steps, usage.tokens_in, usage.tokens_out, usage.tool_calls, usage.model_calls]
        statement = f"SELECT * FROM runs_record(%s, %s, %s, %s, {told}, {booked}, {opened}, {_USAGE}, {cut})"
        values = [self._actor, *values, *more, *asked, *used, *kept]
        also = []
        if gate is not None and wait is not None:
            also.append(gate_statement(gate, wait))
        if wait is not None and wait.kind == "signal":
            also.append((_HAND_OVER, [self._id, wait.detail["name"]]))  # one that came before anybody waited
        return await self._commit(events, lambda: (statement, [*self._fence(), *values]), also)

    async def leave(
        self, how: How, events: Sequence[Event], *, state: str, waits: Sequence[UUID] = (), error: str = ""
    ) -> Reply:
        told, values = self._lines(events)
        statement = f"SELECT * FROM runs_leave(%s, %s, %s, %s, %s, %s::uuid[], %s, {told})"
        values = [how, state, list(waits), error, *values]
        also = [(withdraw, [self._id]) for withdraw in on_withdraw] if how == "end" else []
        return await self._commit(events, lambda: (statement, [*self._fence(), *values]), also, lets_go=True)

    def _lines(self, events: Sequence[Event]) -> tuple[str, list[Any]]:
        return lines(events, self._id, self.seq)

    def _fence(self) -> list[Any]:
        return [self.run_id, self.lease.epoch, self._token]

    async def _commit(
        self,
        events: Sequence[Event],
        build: Callable[[], tuple[str, list[Any]]],
        also: Sequence[tuple[str, list[Any]]] = (),
        *,
        lets_go: bool = False,
    ) -> Reply:
        async with self._committing:
            return await self._committed(events, build, also, lets_go)

    async def _committed(
        self, events: Sequence[Event], build: Callable[[], tuple[str, list[Any]]], also: Sequence[tuple[str, list[Any]]], lets_go: bool
    ) -> Reply:
        """One commit, whatever the connection does. Raises StaleLease, ApprovalMissing, StatementRefused."""
        refusals, patience = Refusals(f"run {self.run_id}, writing {_named(events)}"), Patience(first_seconds=0.05, last_seconds=1.0)
        while True:
            try:
                reply = await self._once(*build(), also)
                break
            except PoolTimeout:
                continue  # no connection was free: nothing was sent, so there is nothing to find out
            except (psycopg.Error, OSError) as error:
                known = translated(error) if isinstance(error, psycopg.Error) else error
                if known is not error:
                    raise known from error
                if not is_transient(error):
                    raise
                if refusals.note(error):  # so there is nothing to find out, and no claim is spent on it
                    log.warning("run %s: the database refused a commit (%s); trying again", self.run_id, first_line(error))
                    await asyncio.sleep(patience.seconds())
                    continue
                log.warning("run %s: the database did not answer a commit (%s); finding out what it did", self.run_id, first_line(error))
            found = await self._find_out(events, lets_go)
            if found is not None:
                reply = found
                break
        self.on_write(self.run_id, reply.seq)
        return self._note(reply)

    async def _once(self, statement: str, parameters: list[Any], also: Sequence[tuple[str, list[Any]]]) -> Reply:
        if not also:
            async with self._turns:
                connection = await self.pool.getconn()
                try:
                    return await self._answer(connection, statement, parameters)
                finally:
                    await self.pool.putconn(connection)
        async with self.pool.connection() as connection, connection.transaction():
            reply = await self._answer(connection, statement, parameters)
            for extra, extra_parameters in also if reply.is_done else ():
                await connection.execute(extra, extra_parameters)
        return reply

    async def _answer(self, connection: Connection, statement: str, parameters: list[Any]) -> Reply:
        sending = one_row(connection, statement, parameters)
        if failpoints.is_armed("CP5"):
            sent = asyncio.ensure_future(sending)
            # The statement is on its way; whether it commits before the kill is the database's business.
            await asyncio.sleep(0.001)
            try:
                failpoints.hit("CP5")
            finally:
                # Nobody else may have the connection, nor close it, while somebody still listens on it.
                await asyncio.wait([sent])
            return reply_of(sent.result())
        return reply_of(await sending)

    async def _find_out(self, events: Sequence[Event], lets_go: bool) -> Reply | None:
        """What became of a commit whose answer was lost: the reply if it is there, None if it isn't and may be written again."""
        seen, epoch, delay = self.seq, self.lease.epoch, 0.05
        refusals = Refusals(f"run {self.run_id}, finding out whether {_named(events)} was written")
        while True:
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, 1.0)
            try:
                if lets_go and await self._has_let_go(events, seen, epoch):
                    return Reply(seen, self.now())
                try:
                    claimed = await reclaim(self.pool, self.worker, self._id)
                except StaleLease:
                    # Perhaps the lost commit was the one that let the run go. Any other is no longer ours to build on: an intent
                    # may be on record, and whoever has the run now decides what becomes of it.
                    if lets_go and await self._is_written(events, seen, epoch):
                        return Reply(seen, self.now())
                    raise
                self._take(claimed)
                return claimed.reply if await self._is_written(events, seen, epoch) else None
            except (psycopg.Error, OSError) as error:
                if not is_transient(error):
                    raise
                refusals.note(error)

    async def _has_let_go(self, events: Sequence[Event], after: int, epoch: int) -> bool:
        """Whether the lost commit let the run go. Asked before taking the run again, which by now may be in this very worker's hands
        under a newer claim: that one's calls must not be fenced off. The lock outlasts the old backend."""
        async with self.pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE", [self._id])
            cursor = await connection.execute(_WRITTEN, [self._id, after, epoch, encode_clear(events[0])])
            return await cursor.fetchone() is not None

    async def _is_written(self, events: Sequence[Event], after: int, epoch: int) -> bool:
        """Whether this worker wrote them. The epoch tells: whoever has taken the run over since makes the same calls in the same
        words, and an intent of theirs is no leave to send."""
        return await self._row(_WRITTEN, self._id, after, epoch, encode_clear(events[0])) is not None

    # --- reading ---

    async def load(self) -> History:
        """Checkpoint and tail. The claim was a statement of its own before this one, so the old owner's last commit is seen."""
        return await patiently(self._load, f"run {self.run_id}, reading its journal")

    async def signal(self, name: str, n: int) -> SignalReceived:
        """One read of what can't change any more, checked against its hash."""
        row = await patiently(lambda: self._row(SIGNAL, self._id, self._id, name, n), f"run {self.run_id}, reading signal {name}")
        event = None if row is None else checked(self._id, row)[1]
        if not isinstance(event, SignalReceived) or (event.name, event.n) != (name, n):
            raise JournalBroken(f"run {self.run_id} has no event for signal {name} number {n}")
        return event

    async def may_repeat(self, slot: str, attempt: int) -> Reply:
        async with self._committing:
            return await self._may_repeat(slot, attempt)

    async def _may_repeat(self, slot: str, attempt: int) -> Reply:
        """One read. While the database is away nothing is known, so nothing is sent."""
        head = await patiently(lambda: self._row(_MAY_REPEAT, slot, attempt, self._id), f"run {self.run_id}, asking about {slot}")
        assert head is not None
        epoch, lease, is_answered, *flags = head
        self._check_lease(epoch, lease)
        reply = Reply(*flags)
        return self._note(replace(reply, is_done=reply.stop is None and not is_answered))

    async def _row(self, query: str, *parameters: Any) -> tuple[Any, ...] | None:
        async with self.pool.connection() as connection:
            return await (await connection.execute(query, parameters)).fetchone()

    def _check_lease(self, epoch: int, lease: UUID | None) -> None:
        if (epoch, lease) != (self.lease.epoch, self.lease.token):
            raise StaleLease(f"run {self.run_id} is at epoch {epoch}, the reader came with epoch {self.lease.epoch}")

    async def _load(self) -> History:
        """Two reads. Whoever takes the run from us between them is seen at our next commit, as at any later time."""
        async with self.pool.connection() as connection:
            found = await (await connection.execute(STANDING, [self._id])).fetchall()
            assert found, "the head of a run that was claimed"
            (epoch, lease, *flags), cuts = found[0][:7], [row[7:] for row in found if row[7] is not None]
            self._check_lease(epoch, lease)
            cut = newest_sound(self.run_id, cuts)
            rows = await (await connection.execute(EVENTS, [self._id, cut.seq])).fetchall()
        created, tail = read(self._id, rows, cut, at_least=max(self.seq, flags[0]), graph_id=self._graph_id)
        return History(cut.snapshot, tail, created, self._note(Reply(*flags)))


def _named(events: Sequence[Event]) -> str:
    """What is written, and where: for whoever has to look."""
    return ", ".join(event.KIND if event.slot is None else f"{event.KIND} of slot {event.slot}" for event in events)


_WRITTEN = "SELECT 1 FROM ledger_event WHERE run_id = %s AND seq > %s AND epoch = %s AND clear = %s LIMIT 1"
_HAND_OVER = "SELECT runs_hand_over(%s, %s)"
_MAY_REPEAT = """
SELECT epoch, lease,
       EXISTS (SELECT 1 FROM ledger_event e WHERE e.run_id = h.run_id AND e.slot = %s AND e.attempt = %s AND e.fact = 'result'),
       seq, clock_timestamp(), is_pause_requested, is_cancel_requested, is_on_hold
FROM ledger_head h WHERE run_id = %s
"""


def _opening(wait: WaitSpec | None) -> tuple[str, list[Any]]:
    """A wait as an SQL expression of type `runs_opening`, and its parameters."""
    if wait is None:
        return "NULL", []
    return _WAIT, [
        wait.id, wait.slot, wait.attempt, wait.kind, wait.n, wait.deadline, Jsonb(wait.detail), wait.token_hash,
    ]  # fmt: skip
