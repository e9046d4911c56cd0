"""One visit of one node: its record, its only way to write, and how it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from ledger import events as e
from ledger.errors import StaleLease
from runs.engine.agents import Agent
from runs.engine.budget import Meter, Usage
from runs.engine.errors import INTENT_REFUSED, BudgetShort, MisusedContext, RunHalted
from runs.engine.forks import Fork
from runs.engine.journal import Batch, Journal, Reply, WaitSpec
from runs.engine.messages import Changes, handled_in
from runs.engine.outcomes import WEAKEST_FIRST, Broken, Crashed, Exceeded, Parked, Stopped, Unwind
from runs.engine.places import Asked, Places, Recall, asked_at
from runs.engine.runtime import Control, Runtime, is_being_cancelled
from runs.engine.succession import Talk
from runs.engine.tape import Slot, Tape

FENCED_REST_SECONDS = 0.05
T = TypeVar("T")


class Visit:
    """The running visit: assigns slots, writes through the journal, and unwinds when it must."""

    def __init__(
        self,
        agent: Agent,
        journal: Journal,
        runtime: Runtime,
        control: Control,
        tape: Tape,
        meter: Meter,
        *,
        node: str,
        number: int,
        generation: int,
        created: e.RunCreated,
        trace_id: str,
        depth: int = 0,
        fork: Fork | None = None,
    ) -> None:
        self.agent, self.journal, self.runtime, self.control, self.tape = agent, journal, runtime, control, tape
        self.meter, self.depth, self.fork = meter, depth, fork
        self.run_id, self.node, self.created, self.trace_id = journal.run_id, node, created, trace_id
        self.places, self.recalled = Places(generation, number), Recall(tape)
        self.closing = asyncio.Event()
        self._writing = asyncio.Lock()
        self.choosing = asyncio.Lock()  # of the run's models, which are recorded once
        self.outcome: Parked | Exceeded | Stopped | Broken | Crashed | None = None
        self.is_over = False  # the node has ended
        self.is_torn = False  # a write was interrupted, so nothing more is written
        self._was_cut = False
        self._lost: Exception | None = None
        self._buffered: list[e.Event] = []
        self.talks: list[Talk] = []  # conversations of its assistants, in order
        self.changes: Changes | None = None  # changes to the node's state by messages and operators

    def changes_of(self, state: BaseModel) -> Changes:
        """Return the recorded changes for a node with this state to apply."""
        return Changes(self.agent.state, state, handled_in(self.tape, self.places.visit))

    def next_slot(self) -> str:
        """Return the slot of the current branch's next call."""
        branch = self.places.branch
        if self.is_over:
            raise MisusedContext(f"this context belongs to the visit of {self.node!r}, which has ended")
        if self.has_ended or branch.waits:
            raise Unwind
        return self.places.next_of(branch)

    def stop(self, outcome: Parked | Exceeded | Stopped | Broken | Crashed) -> NoReturn:
        """Close the visit, and leave the node. The strongest outcome counts; of equal ones the first."""
        strength = WEAKEST_FIRST.index(type(outcome))
        if self.outcome is None or strength > WEAKEST_FIRST.index(type(self.outcome)):
            self.outcome = outcome
        self.closing.set()
        raise Unwind(type(self.outcome).__name__)

    @property
    def has_lost_lease(self) -> bool:
        """Return whether another worker has the run, so that this visit can't record anything more."""
        return isinstance(self._lost, StaleLease)

    @property
    def has_ended(self) -> bool:
        """Return whether the visit is stopping: what is in progress is recorded, and nothing more is begun."""
        return self.outcome is not None or self._was_cut or self._lost is not None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Track one journaled call. A node that cancels it can't continue as if it had not been made."""
        try:
            yield
        except asyncio.CancelledError:
            self._was_cut = True
            self.closing.set()
            raise

    def how_it_ended(self) -> Parked | Exceeded | Stopped | Broken | Crashed | None:
        """Return why the visit stopped, if it did. Raises the journal's error, or a swallowed cancellation."""
        if self._lost is not None:
            raise self._lost
        if self._was_cut:
            if is_being_cancelled():
                raise asyncio.CancelledError
            problem = "the node cut a journaled call short: give the tool a timeout instead"
            self.outcome = self.outcome or Crashed("cut_call", problem, "")
        return self.outcome

    def recall(self, slot: str, what: str, requested_hash: str, arguments: Any = None) -> Slot:
        """Return the slot's record after checking that it holds this call; otherwise stop for an operator."""
        if self.has_ended:
            raise Unwind
        return self._fitting(self.recalled.record(slot, what, requested_hash, arguments))

    def open_path(self, slot: str, what: str) -> str:
        return self._fitting(self.recalled.path(slot, what))

    def _fitting(self, recalled: T | Broken) -> T:
        if isinstance(recalled, Broken):
            self.stop(recalled)
        return recalled

    # --- writing ------------------------------------------------------------------------------------------------------

    def buffer(self, event: e.Event) -> None:
        """Write an event with the next commit: nothing durable depends on it before."""
        self._buffered.append(event)

    def take_buffered(self) -> list[e.Event]:
        """Return the buffered events for a commit made by the caller."""
        taken, self._buffered = self._buffered, []
        return taken

    async def commit(self, batch: Batch) -> Reply:
        """Write a step, one at a time, so that reads are stored before what was made of them. An intent waits while
        this process is fenced, letting other writes pass, and unwinds on a stop request or at a cap."""
        while True:
            async with self._writing:
                if not (batch.is_intent and self.runtime.is_fenced()):
                    try:
                        reply = await self._write(batch)
                    except BudgetShort:
                        slot, attempt = batch.events[0].slot or "", batch.events[0].attempt
                        self.stop(Exceeded(slot, self.meter.set_aside((slot, attempt))))
                    except RunHalted as halted:
                        self.stop(Stopped("halt", halted.key))
                    break
            await self.rest(FENCED_REST_SECONDS)
        if batch.is_intent and not reply.is_done:
            self.stop(Stopped(reply.stop or "overtaken"))
        return reply

    async def _write(self, batch: Batch) -> Reply:
        """Write the batch together with buffered events; keep the buffer if the write was refused."""
        if batch.is_intent:
            self.check_stop(batch.events[0])
            self.runtime.hit("CP1", batch.entries[0].tool if batch.entries else "")
        if self.is_torn:
            raise Unwind
        buffered, is_written = self.take_buffered(), False
        whole = replace(batch, events=[*buffered, *batch.events]) if buffered else batch
        try:
            reply = await self._shielded(self.journal.commit(whole))
            is_written = reply.is_done
            if is_written:
                self.meter.book(whole.events, whole.usage)
        finally:
            if not is_written and not self.is_torn:
                self._buffered[:0] = buffered
        return reply

    async def check_repeat(self, slot: str, attempt: int, key: str = "", *, judged: int | None = None) -> None:
        """Check that an announced call may be sent again, as judged. Unwinds if not; raises PoliciesChanged."""
        async with self._writing:
            self.check_stop()
            reply: Reply = await self._shielded(self.journal.may_repeat(slot, attempt, key, judged=judged))
        if reply.is_halted and reply.stop is None:
            self.stop(Stopped("halt", key))
        if not reply.is_done:
            self.stop(Stopped(reply.stop or "overtaken"))

    async def signal(self, name: str, n: int) -> e.SignalReceived | e.SignalCarried:
        """Return a signal taken by a call of this visit; it may be much older than the visit."""
        known = self.tape.signals.get((name, n))
        return await self.look_up(self.journal.signal(name, n)) if known is None else known

    async def asked(self, slot: str) -> Asked:
        """Return the question at a slot, from any visit."""
        if (known := self.tape.slots.get(slot)) is not None and known.gate is not None:
            return Asked(known, frozenset())
        return asked_at(slot, await self.look_up(self.journal.asked(slot)))

    async def look_up(self, asking: Coroutine[Any, Any, T]) -> T:
        """Query the journal: one query at a time, and none during a write."""
        async with self._writing:
            return await self._shielded(asking)

    async def _shielded(self, writing: Coroutine[Any, Any, T]) -> T:
        """Await the journal; keep its errors from the node and raise them at the visit's end."""
        try:
            return await writing
        except INTENT_REFUSED:
            raise
        except Exception as error:
            if self._lost is None or isinstance(error, StaleLease):
                self._lost = error  # it outranks other branches' errors: another worker has the run
            self.closing.set()
            raise Unwind from error
        except BaseException:
            # Interrupted: it may or may not be written, so nothing that came after may be written.
            self.is_torn = True
            raise

    def afford(self, slot: str, attempt: int, wanted: Usage, *, is_reserved: bool = False) -> None:
        """Check that a call breaks no cap, and reserve its usage if `is_reserved`. Unwinds to ask people otherwise."""
        breach = self.meter.breach(wanted, besides=(slot, attempt))
        if breach is not None:
            self.stop(Exceeded(slot, wanted, breach))
        if is_reserved:
            self.meter.reserve((slot, attempt), wanted)

    def boundary(self, reply: Reply) -> None:
        """Stop after a durable step if requested."""
        if reply.stop is not None:
            self.stop(Stopped(reply.stop))
        self.check_stop()

    def check_stop(self, intent: e.Event | None = None) -> None:
        """Stop if requested, or if another branch had to; one branch's cap doesn't stop a call with a reservation."""
        if self.control.stop is not None:
            self.stop(Stopped(self.control.stop))
        is_capped = isinstance(self.outcome, Exceeded) and not self._was_cut and self._lost is None
        if self.has_ended and not (is_capped and intent is not None and self.meter.has_room_for(intent)):
            raise Unwind

    def park(self, *waits: WaitSpec) -> NoReturn:
        """Suspend this branch until one of `waits` is resolved. The visit parks when its node must."""
        branch = self.places.branch
        branch.waits = waits
        if branch.under:
            raise Unwind("Parked")
        self.stop(Parked(tuple((w.id, w.kind, w.slot) for w in waits)))

    async def rest(self, seconds: float) -> None:
        """Wait in place between two tries; a stop ends the wait and the visit."""
        ends = [asyncio.ensure_future(each.wait()) for each in (self.control.stop_asked, self.closing)]
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ends:
                each.cancel()
        self.check_stop()
