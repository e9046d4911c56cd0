"""Group commit: steps of different runs that are ready in the same turn of the event loop travel together, in one round
trip and one commit, each under its own fence and with its own answer.

    write ─► ready ─(end of this turn, a place free)─┬─ one: a statement in autocommit, on its own connection
                                                     └─ several: a pipeline up to one Sync ─► answers, each to its run

Nobody waits for company: a write that finds a free place goes at the end of the turn, and while the places are taken
the next batch gathers by itself. No batch takes more than its share of what is under way and ready: were all runs of a
worker in one, worker and server would work in turns, each idle while the other isn't, and stay so, since who is
answered together is ready together. What a batch can't do for a step, the step does alone, at once and on the same
terms as if it had never had company: where somebody holds its run's head (a batch takes heads only where they are free,
so it waits for nobody and is part of no deadlock), and where the server refused one of the batch, which undoes all of
it. Alone goes too what may draw on a pool, whose meter is locked after the head. So each gets its own refusal, from the
server, and the others none.
"""

from __future__ import annotations

import asyncio
import re
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache, partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from runs import failpoints
from runs.engine.journal import Reply
from runs.journal.libpq import Connection, Pool, Sent, Undone, as_sent, one_row, reply_of, rows_in_one_commit, turns

T = TypeVar("T")

MOST_TOGETHER = 32
MOST_IN_FLIGHT = 2  # while one commits, the server works on the next
SHARES = 2  # of what is under way or ready: as many batches
# What libpq hands the kernel at once: a worker that is stopped has sent all of a batch with its Sync, or nothing, so
# that no transaction of its own stays open over the heads that it has. A larger write goes alone.
MOST_BYTES = 60 * 1024
# A lone write that takes longer, for somebody holds its head, stands in nobody's way.
PLACE_SECONDS = 0.02
CUT_OFF_SECONDS = 5.0
_STEP = re.compile(r"SELECT \* FROM (runs_\w+)\(%s, ")
_DRAWING = frozenset({"runs_intend", "runs_record"})
_committers: WeakKeyDictionary[Pool, Committer] = WeakKeyDictionary()


class _Alone(Enum):
    """What a write is told instead of an answer: it goes alone, sent by `Committer.write`."""

    HAS_PLACE = auto()  # counted as in flight until it is answered, or `PLACE_SECONDS` have passed
    TURNED_AWAY = auto()  # the batch could not do it


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
    """One of those in flight, with one write in it; left once."""

    def __init__(self, landed: Callable[[int], None]) -> None:
        self._landed, self._is_left = landed, False

    def leave(self) -> None:
        if not self._is_left:
            self._is_left = True
            self._landed(1)


def committer(pool: Pool) -> Committer:
    """The one of this pool, which all of a host's journals share."""
    known = _committers.get(pool)
    if known is None:
        known = _committers[pool] = Committer(pool)
    return known


class Committer:
    """What is ready to be written, and what is under way."""

    def __init__(self, pool: Pool) -> None:
        self._pool = weakref.ref(pool)  # which is what this is found by, and must be free to go
        self._turns = turns(pool)
        self._ready: deque[_Write] = deque()
        self.in_flight = 0
        self.carried = 0  # writes in what is in flight
        self._is_due = False

    async def write(
        self, run: str, statement: str, values: Sequence[Any], *, after: Sequence[str] = (), is_alone: bool = False
    ) -> Reply:
        """One step of a run, in company unless `is_alone`. Statements that come `after` it, in the same transaction,
        take the run's id and answer nothing. Raises psycopg.Error and OSError as a statement of its own does."""
        step = as_sent(statement, values)
        if is_alone:
            return await self.alone(run, step, after)
        _, sent, formats = step
        loop = asyncio.get_running_loop()
        write = _Write(run, statement, sent, formats, after, loop.create_future(), sum(map(len, filter(None, sent))))
        if write.size > MOST_BYTES:
            return await self.alone(run, step, after)
        self._ready.append(write)
        self._send_soon()
        try:
            answer = await write.answer
        except asyncio.CancelledError:
            await self._given_up(write)
            raise
        if isinstance(answer, Reply):
            return answer
        if answer is _Alone.TURNED_AWAY:
            return await self.alone(run, step, after)
        place = _Place(self._landed)
        timer = loop.call_later(PLACE_SECONDS, place.leave)
        try:
            return await self.alone(run, step, after)
        finally:
            timer.cancel()
            place.leave()

    async def alone(self, run: str, step: Sent, after: Sequence[str] = ()) -> Reply:
        """A transaction of its own."""
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
        """Send what is ready at the end of this turn of the loop, if there is a place."""
        if self._ready and not self._is_due and self.in_flight < MOST_IN_FLIGHT:
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
            batch.task.add_done_callback(partial(self._ended, batch))  # also of one that was cut off before it began
        self._send_soon()

    def _next(self) -> list[_Write]:
        """What travels together now: the oldest, as many as fit and are their share."""
        writes: list[_Write] = []
        size = 0
        share = -(-(self.carried + len(self._ready)) // SHARES)
        while self._ready and len(writes) < min(share, MOST_TOGETHER):
            size += self._ready[0].size
            if writes and size > MOST_BYTES:
                break
            write = self._ready.popleft()
            if not write.answer.done():  # else its run's task was cut off
                writes.append(write)
        return writes

    def _ended(self, batch: _Batch, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # by the loop's own end, if anybody still waits
            for write in batch.writes:
                write.answer.cancel()
        self._landed(len(batch.writes))

    def _landed(self, carried: int) -> None:
        self.in_flight -= 1
        self.carried -= carried
        self._send_soon()

    async def _given_up(self, write: _Write) -> None:
        """Its run's task was cut off. Its neighbours go on; a batch that nobody waits for any more is cut off like a
        lone statement. Either way it is over before the run writes again, unless the server takes longer than
        `CUT_OFF_SECONDS`."""
        if write.batch is None:
            if not write.answer.cancelled():
                self._landed(1)  # it had got its place
            return
        task = write.batch.task
        assert task is not None
        if not write.batch.is_wanted:
            task.cancel()
        await asyncio.wait([task], timeout=CUT_OFF_SECONDS)

    async def _carry(self, batch: _Batch) -> None:
        """Bring each its answer, or to all what went wrong with the connection: then each finds out by itself what was
        written."""
        try:
            answers = await self._together(batch.writes)
        except Undone:
            answers = [_Alone.TURNED_AWAY] * len(batch.writes)  # alone, the one that was refused hears why
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
                    statements.append((in_company(write.statement), write.values, write.formats))
                    statements += _following(write.run, write.after)
                sending = rows_in_one_commit(connection, statements)
                answers = await _passing_cp5(sending, [write.run for write in writes])
                rows = [answers[place] for place in places]
            finally:
                await pool.putconn(connection)
        return [_Alone.TURNED_AWAY if row is None else reply_of(row) for row in rows]


def _following(run: str, after: Sequence[str]) -> list[Sent]:
    return [as_sent(statement, [run]) for statement in after]


async def answered(connection: Connection, run: str, step: Sent) -> Reply:
    """What a step's statement answers, on a connection that the caller has to itself."""
    return reply_of(await _passing_cp5(one_row(connection, step), [run]))


async def _passing_cp5(sending: Coroutine[Any, Any, T], runs: Sequence[str]) -> T:
    if not any(failpoints.is_armed("CP5", run) for run in runs):
        return await sending
    sent = asyncio.ensure_future(sending)
    # The statement is on its way; whether it commits before the kill is the database's business.
    await asyncio.sleep(0.001)
    try:
        for run in runs:
            failpoints.hit("CP5", run=run)
    finally:
        # Nobody else may have the connection, nor close it, while somebody still listens on it.
        await asyncio.wait([sent])
    return sent.result()


@lru_cache(maxsize=512)
def in_company(statement: str) -> str:
    """A step's statement, which does nothing and answers no row where somebody holds its run's head, or where the step
    may lock a pool's meter, for which others may wait. The function takes its run from the locked row, so that it can't
    be called before that."""
    step = _STEP.match(statement)
    assert step is not None, statement
    free = "SELECT run_id FROM ledger_head WHERE run_id = %s FOR UPDATE SKIP LOCKED"
    if step[1] in _DRAWING:
        free = free.replace("FOR UPDATE", "AND NOT runs_is_pooled(run_id) FOR UPDATE")
    return f"SELECT step.* FROM ({free}) free, LATERAL {step[1]}(free.run_id, {statement[step.end() :]} step"
