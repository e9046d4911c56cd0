"""Creates child runs and continuations.
Children are written in the transaction of the step's intent, continuations in that of the continued run's end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol
from uuid import UUID

from psycopg.types.json import Jsonb

from ledger import events as e
from ledger.actors import Lease
from ledger.append import lines
from ledger.codec import Upload, collecting
from ledger.contents import stored_text
from ledger.protocol import PROTOCOL
from runs import features
from runs.engine.gating.fields import ABOUT_LENGTH, subject
from runs.engine.journal import ChildSpec, Effects, MakeSuccessor, Reply, Successor
from runs.journal.committer import answered
from runs.journal.large import upload_all
from runs.journal.libpq import Pool, as_sent, transaction
from runs.journal.lookups import Lookups

_LOCK = "SELECT FROM ledger_head WHERE run_id = %s FOR UPDATE"
_START = "SELECT runs_start_child(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::text[], {lines}, %s, %s)"


def child_statements(spec: ChildSpec) -> list[tuple[str, list[Any]]]:
    """Return the statements that create a child, with its journal's first events."""
    run_id, by = UUID(spec.run_id), f"run:{spec.parent}"
    events: list[e.Event] = [
        e.RunCreated(agent=spec.agent, version=spec.version, by=by, protocol=PROTOCOL, payload=spec.input),
        e.ChildOf(parent=spec.parent, parent_slot=spec.slot, parent_attempt=spec.attempt, depth=spec.depth),
    ]
    caps = spec.caps.stated()
    if caps or spec.time is not None:
        events.append(e.BudgetSet(by=by, caps=caps, until=""))
    if spec.attributes is not None:
        events.append(spec.attributes)
    with features.birth(run_id) as also:
        placeholders, values = lines(events, run_id, 0)
        about = stored_text(subject(spec.input)[:ABOUT_LENGTH], run_id)
    words = features.search_terms(run_id, by=by, tags=spec.tags, input=spec.input)
    seconds = None if spec.time is None else int(spec.time.total_seconds())
    values = [
        UUID(spec.parent),
        spec.slot,
        spec.attempt,
        spec.depth,
        run_id,
        spec.agent,
        spec.version,
        f"{spec.agent}@{spec.version}",
        Jsonb(list(spec.tags)),
        spec.trace_id,
        about,
        words,
        *values,
        Jsonb(caps),
        seconds,
    ]
    return [(_START.format(lines=placeholders), values), *also]


def successor_parts(successor: Successor) -> tuple[str, list[Any]]:
    """Return the parameters of `runs_succeed` for a continuation, including its journal's first events."""
    run_id, carried_on = UUID(successor.run_id), successor.carried_on
    placeholders, values = lines(list(successor.events), run_id, 0)
    words = features.search_terms(
        run_id, by="", tags=(), input=successor.input, key=carried_on.business_key
    )  # the other search terms come from the run that it continues
    about = stored_text(subject(successor.input)[:ABOUT_LENGTH], run_id)
    carried: list[list[int]] = [list(column) for column in zip(*successor.signals, strict=True)] or [[], [], []]
    parts = (
        "%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::text[], "
        f"%s, %s, %s::bigint[], %s::bigint[], %s::int[], %s::bigint[], {placeholders}"
    )
    return parts, [
        run_id,
        carried_on.how,
        successor.agent,
        successor.version,
        UUID(carried_on.first),
        carried_on.turn,
        carried_on.handoffs,
        carried_on.business_key,
        about,
        words,
        Jsonb(successor.left.stated()),
        Jsonb(successor.caps.stated()),
        list(successor.all_signals),
        *carried,
        *values,
    ]


class _Commits(Protocol):
    seq: int
    run_id: str
    lease: Lease
    pool: Pool
    on_birth: Callable[[], None]
    _id: UUID
    _uploads: list[Upload]
    _lookups: Lookups

    async def _send(
        self, events: Sequence[e.Event], send: Callable[[bool], Awaitable[Reply]], *, lets_go: bool
    ) -> Reply: ...


class Continuation:
    """The part of the `Journal` port that creates continuations."""

    async def origin(self: _Commits) -> e.RunCarriedOn | None:
        return await self._lookups.origin()

    async def taken_over(self: _Commits) -> Sequence[e.AnswerTakenOver]:
        return await self._lookups.taken_over()

    async def undone(self: _Commits, places: Collection[tuple[str, str, int]]) -> Collection[tuple[str, str, int]]:
        return await self._lookups.undone(places)

    async def inherited(self: _Commits) -> Sequence[tuple[int, e.Event]]:
        return await self._lookups.inherited()

    async def effects(self: _Commits) -> Effects:
        return await self._lookups.effects()

    async def succeed(self: _Commits, make: MakeSuccessor) -> Reply:
        """Create the continuation, after locking the head.
        The lock decides for each signal whether it is passed on or sent to the new run."""
        events: list[e.Event] = []

        async def send(_: bool) -> Reply:
            async with self.pool.connection() as connection, transaction(connection):
                await connection.execute(_LOCK, [self._id])
                events[:], successor = make(await self._lookups.inherited_on(connection))
                with features.birth(UUID(successor.run_id)) as also, collecting(self._uploads):
                    (written, values), (born, more) = lines(events, self._id, self.seq), successor_parts(successor)
                await upload_all(self._uploads)
                fence = [self.run_id, self.lease.epoch, str(self.lease.token)]
                statement = f"SELECT runs_succeed(%s, %s, %s, {written}, {born})"
                reply = await answered(connection, self.run_id, as_sent(statement, [*fence, *values, *more]))
                also += [(follow, [self._id]) for follow in features.parts_of_all(lambda each: each.on_withdraw)]
                for statement, values in also if reply.is_done else ():
                    await connection.execute(statement, values)
            return reply

        reply = await self._send(events, send, lets_go=True)
        if reply.is_done:
            self.on_birth()  # a worker may claim the new run
        return reply
