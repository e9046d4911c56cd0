"""One visit of one node: its recorded past, its one way to write, and how it stops."""

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
    """The running visit: hands out slots, writes through the journal, and unwinds when it must."""

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
        self.choosing = asyncio.Lock()  # of the models that the run asks, which is put on record once
        self.outcome: Parked | Exceeded | Stopped | Broken | Crashed | None = None
        self.is_over = False  # the node has ended
        self.is_torn = False  # a write was cut off in the middle, so nothing more is written
        self._was_cut = False
        self._lost: Exception | None = None
        self._buffered: list[e.Event] = []
        self.talks: list[Talk] = []  # the conversations of its assistants, in their order
        self.changes: Changes | None = None  # what was changed of the node's state by messages and operators

    def changes_of(self, state: BaseModel) -> Changes:
        """What is on record of changes to the state that the node has, for it to take over."""
        return Changes(self.agent.state, state, handled_in(self.tape, self.places.visit))

    def next_slot(self) -> str:
        """The identity of the next call of the branch that runs now."""
        branch = self.places.branch
        if self.is_over:
            raise MisusedContext(f"this context belongs to the visit of {self.node!r}, which has ended")
        if self.has_ended or branch.waits:
            raise Unwind
        return self.places.next_of(branch)

    def stop(self, outcome: Parked | Exceeded | Stopped | Broken | Crashed) -> NoReturn:
        """Close the visit, and leave the node. Of several outcomes the strongest stands, of equals the first."""
        strength = WEAKEST_FIRST.index(type(outcome))
        if self.outcome is None or strength > WEAKEST_FIRST.index(type(self.outcome)):
            self.outcome = outcome
        self.closing.set()
        raise Unwind(type(self.outcome).__name__)

    @property
    def has_lost_lease(self) -> bool:
        """Whether somebody else has the run by now, so that nothing of this visit can be recorded any more."""
        return isinstance(self._lost, StaleLease)

    @property
    def has_ended(self) -> bool:
        """Whether the visit stops, for whatever reason: what is in flight is recorded, and nothing more is begun."""
        return self.outcome is not None or self._was_cut or self._lost is not None

    @contextmanager
    def step(self) -> Iterator[None]:
        """One journaled call. A node that cuts it short can't go on as if it had not been made."""
        try:
            yield
        except asyncio.CancelledError:
            self._was_cut = True
            self.closing.set()
            raise

    def how_it_ended(self) -> Parked | Exceeded | Stopped | Broken | Crashed | None:
        """Why the visit stopped, if it did, whatever the node made of that. Raises what the journal raised, or the
        cancellation that the node swallowed."""
        if self._lost is not None:
            raise self._lost
        if self._was_cut:
            if is_being_cancelled():
                raise asyncio.CancelledError
            problem = "the node cut a journaled call short: give the tool a timeout instead"
            self.outcome = self.outcome or Crashed("cut_call", problem, "")
        return self.outcome

    def recall(self, slot: str, what: str, requested_hash: str, arguments: Any = None) -> Slot:
        """The slot's record, after checking that this is the call that it holds. Stops for an operator if it isn't."""
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
        """Let an event be written with the next commit: nothing durable depends on it before."""
        self._buffered.append(event)

    def take_buffered(self) -> list[e.Event]:
        """The events that are to be written with the next commit, which the caller makes."""
        taken, self._buffered = self._buffered, []
        return taken

    async def commit(self, batch: Batch) -> Reply:
        """The only write of a step; the caller has its facts on record when this returns. One at a time: what a branch
        read is on disk before what it made of it. An intent lets the others write while this process has no place among
        the workers (it may lose it in the queue), and unwinds where people asked for a stop, or at a cap."""
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
        """In its turn, with what was buffered; that stays where nothing was written."""
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
        """Make sure that an announced call may go out once more, as judged. Unwinds if not; raises PoliciesChanged."""
        async with self._writing:
            self.check_stop()
            reply: Reply = await self._shielded(self.journal.may_repeat(slot, attempt, key, judged=judged))
        if reply.is_halted and reply.stop is None:
            self.stop(Stopped("halt", key))
        if not reply.is_done:
            self.stop(Stopped(reply.stop or "overtaken"))

    async def signal(self, name: str, n: int) -> e.SignalReceived | e.SignalCarried:
        """A signal that a call of this visit took; it may have come long before the visit."""
        known = self.tape.signals.get((name, n))
        return await self.look_up(self.journal.signal(name, n)) if known is None else known

    async def asked(self, slot: str) -> Asked:
        """What people were asked at a slot, whichever visit that was in."""
        if (known := self.tape.slots.get(slot)) is not None and known.gate is not None:
            return Asked(known, frozenset())
        return asked_at(slot, await self.look_up(self.journal.asked(slot)))

    async def look_up(self, asking: Coroutine[Any, Any, T]) -> T:
        """What the journal answers: one question at a time, and none while something is written."""
        async with self._writing:
            return await self._shielded(asking)

    async def _shielded(self, writing: Coroutine[Any, Any, T]) -> T:
        """What goes wrong with the journal is not the node's business: it is raised again at the visit's end."""
        try:
            return await writing
        except INTENT_REFUSED:
            raise
        except Exception as error:
            if self._lost is None or isinstance(error, StaleLease):
                self._lost = error  # whatever else went wrong in another branch: the run is somebody else's by now
            self.closing.set()
            raise Unwind from error
        except BaseException:
            # Cut off in the middle: nobody knows whether it was written, so nothing may be written that came after it.
            self.is_torn = True
            raise

    def afford(self, slot: str, attempt: int, wanted: Usage, *, is_reserved: bool = False) -> None:
        """Make sure that a call that is about to be begun breaks no cap; with `is_reserved`, set aside what it wants.
        Unwinds if it would: people are asked first."""
        breach = self.meter.breach(wanted, besides=(slot, attempt))
        if breach is not None:
            self.stop(Exceeded(slot, wanted, breach))
        if is_reserved:
            self.meter.reserve((slot, attempt), wanted)

    def boundary(self, reply: Reply) -> None:
        """A step is durable: stop here if anybody asked for it."""
        if reply.stop is not None:
            self.stop(Stopped(reply.stop))
        self.check_stop()

    def check_stop(self, intent: e.Event | None = None) -> None:
        """Stop if the shell asked for it, or if another branch had to; a cap that one came to stops none with room."""
        if self.control.stop is not None:
            self.stop(Stopped(self.control.stop))
        is_capped = isinstance(self.outcome, Exceeded) and not self._was_cut and self._lost is None
        if self.has_ended and not (is_capped and intent is not None and self.meter.has_room_for(intent)):
            raise Unwind

    def park(self, *waits: WaitSpec) -> NoReturn:
        """Nothing more to do in this branch until one of these is resolved. The visit parks when its node must."""
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
