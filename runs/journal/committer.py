"""Group commit: steps of runs that are ready at the same time share a round trip and a commit.
Each step keeps its own fence and answer."""

from __future__ import annotations

import asyncio
import re
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache, partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg

from ledger import observers
from ledger.observers import WriteTimed
from runs import failpoints
from runs.engine.journal import Reply
from runs.journal.libpq import Connection, Pool, Sent, Undone, as_sent, one_row, reply_of, rows_in_one_commit, turns

T = TypeVar("T")

MAX_TOGETHER = 32
MAX_IN_FLIGHT = 2  # while one commits, the server works on the next
SHARES = 2  # number of batches that all writes are split into
# Larger writes go alone, so that others don't wait for them. libpq sends the beginning of a batch before its Sync, so a
# worker stopped in between holds heads until `members.hush` ends its connections.
MAX_BYTES = 60 * 1024
# After this time a write that was sent alone, whose head may be locked, no longer counts as in flight.
PLACE_SECONDS = 0.02
CUT_OFF_SECONDS = 5.0
_STEP = re.compile(r"SELECT (runs_\w+)\(%s, ")
# Steps that may lock the meter of a shared budget. The end of a run is such a step, because it settles reserved
# amounts.
_DRAWING = frozenset({"runs_intend", "runs_record", "runs_leave"})
_committers: WeakKeyDictionary[Pool, Committer] = WeakKeyDictionary()


class _Alone(Enum):
    """Returned instead of an answer if `Committer.write` must send the write alone."""

    HAS_PLACE = auto()  # counts as in flight until it is answered, or `PLACE_SECONDS` have passed
    TURNED_AWAY = auto()  # the batch couldn't execute it


@dataclass(slots=True, eq=False)
class _Write:
    run: str
    statement: str
    values: Sequence[bytes | None]
    formats: Sequence[int]
    after: Sequence[str]
    answer: asyncio.Future[Reply | _Alone]
    size: int
    batch: _Batch | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    writes: list[_Write]
    task: asyncio.Task[None] | None = None

    @property
    def is_wanted(self) -> bool:
        return any(not write.answer.done() for write in self.writes)


class _Place:
    """One write's share of the writes in flight. It is released only once."""

    def __init__(self, landed: Callable[[int], None]) -> None:
        self._landed, self._is_left = landed, False

    def leave(self) -> None:
        if not self._is_left:
            self._is_left = True
            self._landed(1)


def committer(pool: Pool) -> Committer:
    """Return the pool's committer, shared by all journals of a host."""
    known = _committers.get(pool)
    if known is None:
        known = _committers[pool] = Committer(pool)
    return known


class Committer:
    """The writes that are ready, and the writes in flight.

    A write is sent at once if none is in flight, otherwise at the end of the event loop's turn if fewer than
    MAX_IN_FLIGHT are. Until then writes gather in a batch, which is sent as a pipeline with one Sync. A batch takes at
    most half of all writes, ready or in flight: with a single batch, worker and server would take turns waiting for
    each other, because runs that are answered together become ready together.

    A step is sent alone, immediately and under the same conditions, if its run's head is locked (a batch takes only
    free heads, so it can't deadlock with another), if the server refused any step of its batch, which undoes the whole
    batch, or if it may lock the meter of a shared budget, which is locked after the head. Each step therefore gets
    exactly its own refusal.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = weakref.ref(pool)  # weak, because the pool is the key of this object and must be collectable
        self._turns = turns(pool)
        self._ready: deque[_Write] = deque()
        self.in_flight = 0
        self.carried = 0  # number of writes in flight
        self._is_due = False

    def write(
        self, run: str, statement: str, values: Sequence[Any], *, after: Sequence[str] = (), is_alone: bool = False
    ) -> Coroutine[Any, Any, Reply]:
        """Write a step, in a batch unless `is_alone`, and then the statements `after`.
        Their parameter is the run's id. Raises psycopg.Error, OSError."""
        writing = self._write(run, statement, values, after, is_alone)
        return _timed(writing) if WriteTimed in observers.installed else writing

    async def _write(
        self, run: str, statement: str, values: Sequence[Any], after: Sequence[str], is_alone: bool
    ) -> Reply:
        step = as_sent(statement, values)
        _, sent, formats = step
        size = sum(map(len, filter(None, sent)))
        if is_alone or size > MAX_BYTES:
            return await self.alone(run, step, after)
        if not self.in_flight and not self._ready:
            self.in_flight += 1
            self.carried += 1
            return await self._in_its_place(run, step, after)
        answer = asyncio.get_running_loop().create_future()
        write = _Write(run, statement, sent, formats, after, answer, size)
        self._ready.append(write)
        self._send_soon()
        try:
            outcome = await answer
        except asyncio.CancelledError:
            await self._given_up(write)
            raise
        if isinstance(outcome, Reply):
            return outcome
        if outcome is _Alone.TURNED_AWAY:
            return await self.alone(run, step, after)
        return await self._in_its_place(run, step, after)

    async def _in_its_place(self, run: str, step: Sent, after: Sequence[str]) -> Reply:
        """Write a step alone; it already counts as in flight."""
        place = _Place(self._landed)
        timer = asyncio.get_running_loop().call_later(PLACE_SECONDS, place.leave)
        try:
            return await self.alone(run, step, after)
        finally:
            timer.cancel()
            place.leave()

    async def alone(self, run: str, step: Sent, after: Sequence[str] = ()) -> Reply:
        """Write a step in its own transaction."""
        pool = self._pool()
        assert pool is not None
        async with self._turns:
            connection = await pool.getconn()
            try:
                if not after:
                    return await answered(connection, run, step)
                row, *_ = await _passing_cp5(rows_in_one_commit(connection, [step, *_following(run, after)]), [run])
                assert row is not None
                return reply_of(row)
            except Undone as undone:
                raise undone.refusal from None
            finally:
                await pool.putconn(connection)

    def _send_soon(self) -> None:
        """Send ready writes at the end of this turn of the loop, unless too many are in flight."""
        if self._ready and not self._is_due and self.in_flight < MAX_IN_FLIGHT:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        writes = self._next()
        if writes:
            self.in_flight += 1
            self.carried += len(writes)
        if len(writes) == 1:
            writes[0].answer.set_result(_Alone.HAS_PLACE)
        elif writes:
            batch = _Batch(writes)
            for write in writes:
                write.batch = batch
            batch.task = asyncio.create_task(self._carry(batch))
            batch.task.add_done_callback(
                partial(self._ended, batch)
            )  # also called if the task was cancelled before it began
        self._send_soon()

    def _next(self) -> list[_Write]:
        writes: list[_Write] = []
        size = 0
        share = -(-(self.carried + len(self._ready)) // SHARES)
        while self._ready and len(writes) < min(share, MAX_TOGETHER):
            size += self._ready[0].size
            if writes and size > MAX_BYTES:
                break
            write = self._ready.popleft()
            if not write.answer.done():  # otherwise the task of its run was cancelled
                writes.append(write)
        return writes

    def _ended(self, batch: _Batch, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # happens if the loop ended while writes were waiting
            for write in batch.writes:
                write.answer.cancel()
        self._landed(len(batch.writes))

    def _landed(self, carried: int) -> None:
        self.in_flight -= 1
        self.carried -= carried
        self._send_soon()

    async def _given_up(self, write: _Write) -> None:
        """Clean up after a cancelled write.
        If no other write waits for its batch, the batch is cancelled. Waits for the batch for up to `CUT_OFF_SECONDS`,
        so that it has ended before the run writes again."""
        if write.batch is None:
            if not write.answer.cancelled():
                self._landed(1)  # it already counts as in flight
            return
        task = write.batch.task
        assert task is not None
        if not write.batch.is_wanted:
            task.cancel()
        await asyncio.wait([task], timeout=CUT_OFF_SECONDS)

    async def _carry(self, batch: _Batch) -> None:
        """Deliver the answers, or the connection's error to all writes; each then finds out whether it was
        committed."""
        try:
            answers = await self._together(batch.writes)
        except Undone:
            answers = [_Alone.TURNED_AWAY] * len(batch.writes)  # sent alone, the refused write gets its error
        except Exception as error:
            for write in batch.writes:
                if not write.answer.done():
                    write.answer.set_exception(error)
            return
        for write, answer in zip(batch.writes, answers, strict=True):
            if not write.answer.done():
                write.answer.set_result(answer)

    async def _together(self, writes: Sequence[_Write]) -> list[Reply | _Alone]:
        pool = self._pool()
        assert pool is not None
        for write in writes:
            failpoints.hit("CP10", run=write.run)
        async with self._turns:
            connection = await pool.getconn()
            try:
                statements: list[Sent] = []
                places: list[int] = []
                for write in writes:
                    places.append(len(statements))
                    statements.append((batched(write.statement), write.values, write.formats))
                    statements += _following(write.run, write.after)
                sending = rows_in_one_commit(connection, statements)
                answers = await _passing_cp5(sending, [write.run for write in writes])
                rows = [answers[place] for place in places]
            finally:
                await pool.putconn(connection)
        return [_Alone.TURNED_AWAY if row is None else reply_of(row) for row in rows]


async def _timed(writing: Coroutine[Any, Any, Reply]) -> Reply:
    """Notify the observers of how long a write took, and of its error."""
    began = time.perf_counter()
    try:
        reply = await writing
    except (psycopg.Error, OSError) as error:
        observers.tell(WriteTimed(time.perf_counter() - began, error))
        raise
    observers.tell(WriteTimed(time.perf_counter() - began, None))
    return reply


def _following(run: str, after: Sequence[str]) -> list[Sent]:
    return [as_sent(statement, [run]) for statement in after]


async def answered(connection: Connection, run: str, step: Sent) -> Reply:
    """Send a step's statement on an exclusive connection and return its answer."""
    return reply_of(await _passing_cp5(one_row(connection, step), [run]))


def _passing_cp5(sending: Coroutine[Any, Any, T], runs: Sequence[str]) -> Coroutine[Any, Any, T]:
    """Return `sending`; if the crash point CP5 is armed, it fires after the statement was sent."""
    is_armed = any(failpoints.is_armed("CP5", run) for run in runs)
    return _sent_through_cp5(sending, runs) if is_armed else sending


async def _sent_through_cp5(sending: Coroutine[Any, Any, T], runs: Sequence[str]) -> T:
    sent = asyncio.ensure_future(sending)
    # The statement has been sent. Whether it commits before the kill is up to the database.
    await asyncio.sleep(0.001)
    try:
        for run in runs:
            failpoints.hit("CP5", run=run)
    finally:
        # The connection must not be reused or closed while a task still waits on it.
        await asyncio.wait([sent])
    return sent.result()


@lru_cache(maxsize=512)
def batched(statement: str) -> str:
    """Return the batch variant of a step's statement.
    The variant has no effect and returns no row if the run's head is locked, or the step may lock the meter of a shared
    budget. It takes the run's id from the locked row, so that the function can't be called before the lock is held."""
    step = _STEP.match(statement)
    assert step is not None, statement
    free = "SELECT run_id FROM ledger_head WHERE run_id = %s FOR UPDATE SKIP LOCKED"
    if step[1] in _DRAWING:
        free = free.replace("FOR UPDATE", "AND NOT runs_is_pooled(run_id) FOR UPDATE")
    return f"WITH free AS ({free}) SELECT {step[1]}(free.run_id, {statement[step.end() :]} FROM free"
