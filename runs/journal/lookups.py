"""Queries that a worker makes about the run that it has claimed.
Each query is repeated until the database answers, so that nothing is sent during an outage."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from psycopg.rows import TupleRow

from ledger.actors import Lease
from ledger.codec import size_of
from ledger.errors import StaleLease
from ledger.events import (
    AnswerTakenOver,
    Event,
    MessageReceived,
    ModelsChosen,
    RunCarriedOn,
    SignalCarried,
    SignalReceived,
)
from ledger.kinds import CHOICE
from runs import features, log_messages
from runs.engine.continuation import LARGE_STATE
from runs.engine.errors import JournalBroken
from runs.engine.forks import Place
from runs.engine.journal import Effects, History, Reply
from runs.engine.policy import hold_to
from runs.engine.undoing.plan import KINDS, at_work
from runs.journal.database_errors import patiently
from runs.journal.large import decoding
from runs.journal.libpq import Connection, Pool
from runs.journal.reader import (
    AT_SLOT,
    CARRIED_ROWS,
    EFFECTS,
    EVENTS,
    INBOX,
    ORIGIN,
    POSITION_ROWS,
    REQUEST_ROWS,
    REVERSIBLE,
    SIGNAL,
    TAKEN_BACK,
    TAKEN_OVER,
    checked,
    cut_of,
    forked_in,
    newest_sound,
    read,
    split_run_row,
    taken_back,
)

_MAY_REPEAT = """
SELECT epoch, lease, runs_has_outcome(h.run_id, %s, %s), runs_halted_by(h.run_id, ARRAY[%s]) IS NOT NULL,
       coalesce(p.revision, 0), coalesce(p.live, 0),
       seq, clock_timestamp(), is_pause_requested, is_cancel_requested, is_on_hold
FROM ledger_head h
LEFT JOIN LATERAL (SELECT revision, live FROM runs_policyrevision ORDER BY revision DESC LIMIT 1) p ON true
WHERE run_id = %s
"""
log = logging.getLogger("runs.journal.lookups")
_OF_EFFECTS = [kind.KIND for kind in KINDS]


class Lookups:
    """Queries about one run. Methods that take a lease raise StaleLease if it is no longer the run's."""

    def __init__(self, pool: Pool, run_id: UUID) -> None:
        self._pool, self._run_id = pool, run_id
        self.state_size = 0  # number of the checkpoint at which the history begins

    def note_state(self, cut: Sequence[Any]) -> None:
        """Log that the state in a new checkpoint is large, unless the previous state was large too."""
        size = size_of(cut[4]) if cut else self.state_size
        if self.state_size < LARGE_STATE <= size:
            log.warning(log_messages.LARGE_STATE, self._run_id, size)
        self.state_size = size

    async def history(self, lease: Lease, version: tuple[str, int], *, at_least: int) -> History:
        """Return the run's history, which must include event `at_least`.
        `version` is the pair of version and generation in the run's row. The run was claimed by an earlier statement,
        so this query sees the previous owner's last commit. Raises JournalBroken."""
        return await patiently(
            lambda: self._history(lease, version, at_least), f"run {self._run_id}, reading its journal"
        )

    async def _history(self, lease: Lease, version: tuple[str, int], at_least: int) -> History:
        """Read checkpoint and events in two queries.
        If another worker takes the run in between, our next commit fails."""
        async with self._pool.connection() as connection:
            await features.prepare_reading(connection, [self._run_id])
            rows = await (await connection.execute(POSITION_ROWS, [self._run_id])).fetchall()
            assert rows, "the head of a claimed run"
            (epoch, token, *flags), caps, used, depth, counts_reads = split_run_row(rows[0])
            self._check_lease(lease, epoch, token)
            cuts = [stored for row in rows if (stored := cut_of(row)) is not None]
            cut = await decoding(cuts, lambda: newest_sound(str(self._run_id), cuts))
            self.state_size = cut.size
            events = await (await connection.execute(EVENTS, [self._run_id, cut.seq])).fetchall()
        created, tail, forked = await decoding(
            events,
            lambda: (
                *read(self._run_id, events, cut, at_least=max(at_least, flags[0]), version=version),
                forked_in(self._run_id, events),
            ),
        )
        return History(cut.snapshot, tail, created, Reply(*flags), caps, used, depth, counts_reads, forked, cut.skipped)

    async def signal(self, name: str, n: int) -> SignalReceived | SignalCarried:
        """Return a signal, checked against its hash. A signal can't change any more. Raises JournalBroken."""
        row = await patiently(
            lambda: self._row(SIGNAL, self._run_id, self._run_id, name, n), f"run {self._run_id}, reading signal {name}"
        )
        (event,) = [None] if row is None else await self._events([row])
        if not isinstance(event, (SignalReceived, SignalCarried)) or (event.name, event.n) != (name, n):
            raise JournalBroken(f"run {self._run_id} has no event for signal {name} with number {n}")
        return event

    async def asked(self, slot: str) -> Sequence[Event]:
        """Return all events at a question's slot, and the intents that use its approval. Raises JournalBroken."""
        named, what = f'"grant":{json.dumps(slot)}', f"run {self._run_id}, reading the approval at {slot}"
        rows = await patiently(lambda: self._rows(REQUEST_ROWS, self._run_id, slot, named), what)
        return await self._events(rows)

    async def models(self) -> Sequence[ModelsChosen]:
        """Return every recorded choice of the run's models, in order. Raises JournalBroken."""
        rows = await patiently(
            lambda: self._rows(AT_SLOT, self._run_id, CHOICE), f"run {self._run_id}, reading its models"
        )
        events = await self._events(rows)
        chosen = [event for event in events if isinstance(event, ModelsChosen)]
        if len(chosen) < len(events) or [event.n for event in chosen] != list(range(len(chosen))):
            raise JournalBroken(f"run {self._run_id}: the record at {CHOICE} is not a model choice")
        return chosen

    async def origin(self) -> RunCarriedOn | None:
        """Return the event that names the run that this one continues. Raises JournalBroken."""
        rows = await patiently(
            lambda: self._rows(ORIGIN, self._run_id), f"run {self._run_id}, reading the run that it continues"
        )
        return next((x for x in await self._events(rows) if isinstance(x, RunCarriedOn)), None)

    async def taken_over(self) -> Sequence[AnswerTakenOver]:
        """Return the answers that this run's calls took over from another run. Raises JournalBroken."""
        rows = await patiently(
            lambda: self._rows(TAKEN_OVER, self._run_id),
            f"run {self._run_id}, reading the records it received from another run",
        )
        events = await self._events(rows)
        return [event for event in events if isinstance(event, AnswerTakenOver)]

    async def undone(self, places: Collection[Place]) -> set[Place]:
        """Return which of these effects of other runs were undone, or may have been.
        An effect may have been undone if its events can't be read."""
        runs = sorted({run for run, *_ in places})
        rows = await patiently(
            lambda: self._rows(TAKEN_BACK, runs, of=list(map(UUID, runs))),
            f"run {self._run_id}, reading which effects other runs undid",
        )
        return await decoding(rows, lambda: taken_back(rows, places))

    async def inherited(self) -> Sequence[tuple[int, Event]]:
        """Return the events that a continuation inherits. Raises JournalBroken."""
        rows = await patiently(
            lambda: self._rows(CARRIED_ROWS, self._run_id, self._run_id), f"run {self._run_id}, reading its annotations"
        )
        return await self._numbered(rows)

    async def inherited_on(self, connection: Connection) -> Sequence[tuple[int, Event]]:
        """Return the events that a continuation inherits, within this connection's transaction. Raises
        JournalBroken."""
        return await self._numbered(
            await (await connection.execute(CARRIED_ROWS, [self._run_id, self._run_id])).fetchall()
        )

    async def _numbered(self, rows: Sequence[TupleRow]) -> Sequence[tuple[int, Event]]:
        return [(row[0], event) for row, event in zip(rows, await self._events(rows), strict=True)]

    async def _events(self, rows: Sequence[TupleRow]) -> list[Event]:
        """Return the events in these rows. Raises JournalBroken."""
        return await decoding(rows, lambda: [checked(self._run_id, row)[1] for row in rows])

    async def effects(self) -> Effects:
        """Return the run's events about effects, and which related runs have effects to undo (see `Effects`).
        The result is empty if nothing could be undone. Raises JournalBroken."""
        rows = await patiently(
            lambda: self._rows(EFFECTS, self._run_id, _OF_EFFECTS, self._run_id),
            f"run {self._run_id}, reading its effects",
        )
        if not rows:
            return Effects()
        roots = await patiently(
            lambda: self._rows(REVERSIBLE, self._run_id, self._run_id), f"run {self._run_id}, reading its related runs"
        )
        events = await self._events(rows)
        return Effects(events, frozenset(str(root) for (root,) in roots), frozenset(at_work(events)))

    async def inbox(self) -> MessageReceived | None:
        """Return the oldest unanswered message. Raises JournalBroken."""
        row = await patiently(
            lambda: self._row(INBOX, self._run_id, self._run_id), f"run {self._run_id}, looking for messages"
        )
        (event,) = [None] if row is None else await self._events([row])
        if event is not None and not isinstance(event, MessageReceived):
            raise JournalBroken(f"a message of run {self._run_id} is recorded at an event that is not about a message")
        return event

    async def may_repeat(self, lease: Lease, slot: str, attempt: int, key: str, judged: int | None) -> Reply:
        """Return whether a call may be repeated.
        It may if the run has no stop request and isn't halted, and the call has no outcome yet. Raises
        PoliciesChanged."""
        head = await patiently(
            lambda: self._row(_MAY_REPEAT, slot, attempt, key, self._run_id), f"run {self._run_id}, asking about {slot}"
        )
        assert head is not None
        epoch, token, is_answered, is_halted, revision, live, *flags = head
        self._check_lease(lease, epoch, token)
        reply = Reply(*flags)
        is_done = reply.stop is None and not is_answered and not is_halted
        if is_done:
            hold_to(revision, live, judged)
        return replace(reply, is_done=is_done, is_halted=is_halted and not is_answered)

    async def _row(self, query: str, *parameters: Any) -> tuple[Any, ...] | None:
        async with self._pool.connection() as connection:
            await features.prepare_reading(connection, [self._run_id])
            return await (await connection.execute(query, parameters)).fetchone()

    async def _rows(self, query: str, *parameters: Any, of: Collection[UUID] = ()) -> list[tuple[Any, ...]]:
        """Return the rows that this query selects from the events of this run, or of the runs `of`."""
        async with self._pool.connection() as connection:
            await features.prepare_reading(connection, of or [self._run_id])
            return await (await connection.execute(query, parameters)).fetchall()

    def _check_lease(self, lease: Lease, epoch: int, token: UUID | None) -> None:
        if (epoch, token) != (lease.epoch, lease.token):
            raise StaleLease(f"run {self._run_id} is at epoch {epoch}, but the reader has epoch {lease.epoch}")
