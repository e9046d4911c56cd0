"""The journal in PostgreSQL; this is the hot path.
A step is one call of one SQL function, one round trip and one commit. If the reply to a commit is lost,
`lost_answers.py` finds out whether it was written. Other reads are in `lookups.py`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg_pool import PoolTimeout

from ledger.actors import Lease
from ledger.append import facts, lines
from ledger.codec import Upload, collecting
from ledger.errors import first_line
from ledger.events import Event
from runs import features
from runs.backoff import Patience
from runs.engine.journal import Batch, History, How, Reply
from runs.journal.children import Continuation, child_statements
from runs.journal.claims import Claim, Worker
from runs.journal.committer import answered, committer
from runs.journal.database_errors import Refusals, raise_known
from runs.journal.large import upload_all
from runs.journal.libpq import Pool, as_sent, transaction
from runs.journal.lookups import Lookups
from runs.journal.lost_answers import Lost, named
from runs.journal.mailbox import Mailbox
from runs.journal.reader import with_cut
from runs.journal.waits import gate_statement, opening_of, question_statements

log = logging.getLogger("runs.journal.postgres")

_REFUSED = "run %s: the database refused a commit (%s); trying again"
_UNANSWERED = "run %s: the database did not answer a commit (%s); finding out what it did"
# Statements in the same transaction, which aren't executed if the step is refused.
Extras = Sequence[tuple[str, list[Any]]]

_HAND_OVER = "SELECT runs_hand_over(%s, %s)"
_USAGE = "ROW(%s, %s, %s, %s, %s)"


class PgJournal(Mailbox, Continuation):
    """The `Journal` port over PostgreSQL, for one claimed run."""

    def __init__(
        self,
        pool: Pool,
        worker: Worker,
        claimed: Claim,
        *,
        on_write: Callable[[str, int], None] = lambda run_id, seq: None,
        on_birth: Callable[[], None] = lambda: None,
    ) -> None:
        self.pool, self.worker, self.on_write, self.on_birth = pool, worker, on_write, on_birth
        self.run_id, self._id, self._actor = str(claimed.run_id), claimed.run_id, worker.ref
        self._committer, self._lookups = committer(pool), Lookups(pool, claimed.run_id)
        self._committing = asyncio.Lock()
        self._uploads: list[Upload] = []  # payloads of the events to be written
        self._take(claimed)

    def _take(self, claimed: Claim) -> None:
        self.lease, self._token = Lease(claimed.epoch, claimed.lease), str(claimed.lease)
        self._said = claimed.graph_id, claimed.generation
        self._note(claimed.reply)

    def _note(self, reply: Reply) -> Reply:
        self.seq, self._reply, self._heard = reply.seq, reply, time.monotonic()
        return reply

    def now(self) -> datetime:
        """Return the database's time, estimated from the last reply and a monotonic clock."""
        return self._reply.at + timedelta(seconds=time.monotonic() - self._heard)

    async def commit(self, batch: Batch) -> Reply:
        if batch.is_intent:
            with collecting(self._uploads):
                statement, values = self._intend(batch)
                made = [] if batch.child is None else child_statements(batch.child)
            reply = await self._commit(batch.events, statement, values, made)
            if batch.child is not None:
                self.on_birth()  # a worker may claim the new run
            return reply
        with collecting(self._uploads):
            events, statement, values = self._record(batch)
        wait, also = batch.wait, question_statements(batch.wait)
        if batch.gate is not None and wait is not None:
            also.append(gate_statement(batch.gate, wait))
        if wait is not None and wait.kind == "signal":
            also.append((_HAND_OVER, [self._id, wait.detail["name"]]))  # for a signal that came before the wait
        return await self._commit(events, statement, values, also)

    def _intend(self, batch: Batch) -> tuple[str, list[Any]]:
        events, values = lines(batch.events, self._id, self.seq)
        (entries, more), (wait, opening) = facts(batch.entries), opening_of(batch.wait)
        statement = f"SELECT runs_intend(%s, %s, %s, %s, {events}, {entries}, %s, %s, {wait})"
        return statement, [self._actor, *values, *more, *(batch.grant or (None, None)), *opening]

    def _record(self, batch: Batch) -> tuple[Sequence[Event], str, list[Any]]:
        written, cut, kept = with_cut(batch.events, batch.snapshot, self._id, *self._said)
        self._lookups.note_state(kept)
        events, values = lines(written, self._id, self.seq)
        (entries, more), (wait, opening) = facts(batch.entries), opening_of(batch.wait)
        u = batch.usage
        used = [u.steps, u.tokens_in, u.tokens_out, u.tool_calls, u.model_calls]
        statement = f"SELECT runs_record(%s, %s, %s, %s, {events}, {entries}, {wait}, {_USAGE}, {cut})"
        return written, statement, [self._actor, *values, *more, *opening, *used, *kept]

    async def leave(
        self, how: How, events: Sequence[Event], *, state: str, waits: Sequence[UUID] = (), error: str = ""
    ) -> Reply:
        written, values = self._lines(events)
        function = "runs_park" if how == "park" else "runs_leave"
        statement = f"SELECT {function}(%s, %s, %s, %s, %s, %s::uuid[], %s, {written})"
        after = tuple(features.parts_of_all(lambda each: each.on_withdraw)) if how == "end" else ()
        return await self._commit(events, statement, [how, state, [*waits], error, *values], after=after, lets_go=True)

    async def set_aside(self, events: Sequence[Event], key: str = "") -> Reply:
        written, values = self._lines(events)
        statement = f"SELECT runs_set_aside(%s, %s, %s, %s::text[], {written})"
        return await self._commit(events, statement, [[key] if key else [], *values], lets_go=True)

    async def _commit(
        self,
        events: Sequence[Event],
        statement: str,
        values: list[Any],
        also: Extras = (),
        *,
        after: Sequence[str] = (),
        lets_go: bool = False,
    ) -> Reply:
        def send(is_refused: bool) -> Awaitable[Reply]:
            fenced = [self.run_id, self.lease.epoch, self._token, *values]
            if also:
                return self._in_transaction(statement, fenced, also)
            # Send the step in a batch with other runs' steps. If it was already refused, send it alone, because it
            # would make the whole batch fail again.
            return self._committer.write(self.run_id, statement, fenced, after=after, is_alone=is_refused)

        return await self._send(events, send, lets_go=lets_go)

    async def _send(self, events: Sequence[Event], send: Callable[[bool], Awaitable[Reply]], *, lets_go: bool) -> Reply:
        """Commit exactly once, whatever happens to the connection.
        Raises StaleLease, StatementRefused, and the errors of a refused intent (TX1). Only one commit runs at a time,
        because recovering from a lost answer reclaims the run, which would fence off a concurrent commit. The argument
        of `send` tells whether the last attempt was refused. Without `events`, a failed attempt wrote nothing."""
        refusals, patience, is_refused = None, Patience(first_seconds=0.05, last_seconds=1.0), False
        async with self._committing:
            await upload_all(self._uploads)
            while True:
                try:
                    reply = await send(is_refused)
                    break
                except PoolTimeout:
                    continue  # no connection was free, so nothing was sent
                except (psycopg.Error, OSError) as error:
                    raise_known(error)
                    refusals = refusals or Refusals(f"run {self.run_id}, writing {named(events)}")
                    is_refused = refusals.note(error)
                    log.warning(_REFUSED if is_refused else _UNANSWERED, self.run_id, first_line(error))
                if is_refused or not events:  # there is no commit to look for, so the run isn't reclaimed
                    await asyncio.sleep(patience.seconds())
                    continue
                lost = Lost(self.pool, self.worker, self._id, events, self.seq, self.lease.epoch, lets_go)
                written, claimed = await lost.find_out()
                if claimed is not None:
                    self._take(claimed)
                if written is not None:
                    reply = Reply(written, self.now()) if claimed is None else claimed.reply
                    break
        self.on_write(self.run_id, reply.seq)
        return self._note(reply)

    async def _in_transaction(self, statement: str, values: list[Any], also: Extras) -> Reply:
        async with self.pool.connection() as connection, transaction(connection):
            reply = await answered(connection, self.run_id, as_sent(statement, values))
            for extra, parameters in also if reply.is_done else ():
                await connection.execute(extra, parameters)
        return reply

    async def load(self) -> History:
        history = await self._lookups.history(self.lease, self._said, at_least=self.seq)
        self._note(history.reply)
        return history

    async def may_repeat(self, slot: str, attempt: int, key: str = "", *, judged: int | None = None) -> Reply:
        async with self._committing:
            return self._note(await self._lookups.may_repeat(self.lease, slot, attempt, key, judged))
