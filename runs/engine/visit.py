"""One visit of one node: the slots and records of its calls, the only way to write, and how the visit stops.

Each branch numbers its own calls below a fixed path, so the numbers don't depend on which branch is faster. On a
replay, calls are checked against their records, and a call with an unknown outcome must not be left out.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel

from ledger import events as e
from ledger.errors import StaleLease
from runs.engine.agents import Agent
from runs.engine.budget import UNLIMITED, Meter, Usage
from runs.engine.continuation import Talk
from runs.engine.errors import INTENT_REFUSED, BudgetShort, MisusedContext, RunHalted
from runs.engine.forks import Fork
from runs.engine.guards import Guard
from runs.engine.halts import FRESH_SECONDS
from runs.engine.journal import Batch, Journal, Reply, WaitSpec
from runs.engine.messages import Changes, handled_in
from runs.engine.outcomes import (
    WEAKEST_FIRST,
    Broken,
    Crashed,
    Exceeded,
    Parked,
    Stopped,
    Unwind,
    describe_call,
    differs,
)
from runs.engine.runtime import Control, Runtime, is_being_cancelled
from runs.engine.tape import Slot, Tape
from runs.engine.tools import Tool

FENCED_REST_SECONDS = 0.05
T = TypeVar("T")


@dataclass(eq=False)
class Branch:
    """A sequence of calls within a visit: the node's own, or that of a branch of a `gather`."""

    under: str = ""  # path below which its calls are numbered
    calls: int = 0
    told: Counter[str] = field(default_factory=Counter)  # number of progress messages of each kind
    waits: tuple[WaitSpec, ...] = ()  # waits of which one must be resolved before it continues
    result: Any = None
    error: BaseException | None = None


class Places:
    """The slots of one visit, and the branch of each task. It must be created in the node's own task."""

    def __init__(self, generation: int, visit: int) -> None:
        self.visit = f"{generation}.{visit}"  # prefix of the visit's slots
        self._branches = {asyncio.current_task(): Branch()}

    @property
    def branch(self) -> Branch:
        """The current task's branch. Raises MisusedContext for a task that is not part of the visit."""
        branch = self._branches.get(asyncio.current_task())
        if branch is None:
            raise MisusedContext(
                "journaled calls must come from the node's own task: use ctx.gather, not asyncio.create_task"
            )
        return branch

    @contextmanager
    def running(self, branch: Branch) -> Iterator[None]:
        """Register the current task as a branch of this visit, for the duration of the context."""
        task = asyncio.current_task()
        self._branches[task] = branch
        try:
            yield
        finally:
            del self._branches[task]

    def next_told(self, what: str) -> tuple[str, int]:
        """Return the place and the number of the branch's next progress message. Raises MisusedContext."""
        branch = self.branch
        branch.told[what] += 1
        return f"{self.at(branch.under)}{'' if what == 'line' else what}", branch.told[what] - 1

    def at(self, path: str) -> str:
        return f"{self.visit}/{path}"


def path_of(slot: str) -> str:
    return slot.partition("/")[2]


def place_of(slot: str) -> int:
    """Return the number, from 1, of the call on the node's own branch to which a slot belongs."""
    return int(path_of(slot).partition("/")[0])


def _on_record(slot: Slot) -> dict[str, Any]:
    return describe_call(slot.what or "", slot.requested_hash or "", slot.arguments)


class QuestionRecord(NamedTuple):
    """The record of a question's slot, and the slots of earlier calls that were sent under its approval."""

    record: Slot
    users: frozenset[str]


def asked_at(slot: str, events: Iterable[e.Event]) -> QuestionRecord:
    """Return the record of an earlier visit's question, built from its events."""
    tape = Tape(events)
    return QuestionRecord(tape.slot(slot), frozenset(name for name, one in tape.slots.items() if one.was_invoked))


class Visit:
    """The current visit: it assigns slots, writes through the journal, and exits when the run must wait or stop."""

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
        self.agent, self.graph_id = agent, agent.graph_id
        self.journal, self.runtime, self.control, self.tape = journal, runtime, control, tape
        self.meter, self.depth, self.fork = meter, depth, fork
        self.run_id, self.node, self.created, self.trace_id = journal.run_id, node, created, trace_id
        self.places = Places(generation, number)
        self.reached: set[str] = set()  # slots that the node has reached
        self.closing = asyncio.Event()
        self._writing = asyncio.Lock()
        self.choosing = asyncio.Lock()  # lock for choosing the run's models, which are recorded once
        self.outcome: Parked | Exceeded | Stopped | Broken | Crashed | None = None
        self.is_over = False  # the node has ended
        self.is_torn = False  # a write was interrupted, so nothing more may be written
        self._was_cut = False
        self._lost: Exception | None = None
        self._buffered: list[e.Event] = []
        self._guards: dict[tuple[str, int, int], Sequence[Guard]] = {}
        self.talks: list[Talk] = []  # conversations of its assistants, in order
        self.changes: Changes | None = None  # changes to the node's state by messages and operators

    def changes_of(self, state: BaseModel) -> Changes:
        """Return the recorded changes that a node with this state must apply."""
        return Changes(self.agent.state, state, handled_in(self.tape, self.places.visit))

    def next_slot(self) -> str:
        """Return the slot for the next call of the current branch."""
        branch = self.places.branch
        if self.is_over:
            raise MisusedContext(f"this context belongs to the visit of {self.node!r}, which has ended")
        if self.has_ended or branch.waits:
            raise Unwind
        branch.calls += 1
        return f"{self.places.visit}/{branch.under}{branch.calls}"

    def stop(self, outcome: Parked | Exceeded | Stopped | Broken | Crashed) -> NoReturn:
        """Set the visit's outcome and leave the node. The strongest outcome wins, and among equal ones the first."""
        strength = WEAKEST_FIRST.index(type(outcome))
        if self.outcome is None or strength > WEAKEST_FIRST.index(type(self.outcome)):
            self.outcome = outcome
        self.closing.set()
        raise Unwind(type(self.outcome).__name__)

    @property
    def has_lost_lease(self) -> bool:
        """Return whether another worker has the run, so that this visit can no longer record anything."""
        return isinstance(self._lost, StaleLease)

    @property
    def has_ended(self) -> bool:
        """Return whether the visit is stopping: calls in progress are still recorded, but no new ones begin."""
        return self.outcome is not None or self._was_cut or self._lost is not None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Return a context in which the visit ends if the current journaled call is cancelled."""
        try:
            yield
        except asyncio.CancelledError:
            self.cut()
            raise

    def cut(self) -> None:
        """End the visit because a journaled call was cancelled.

        The node can't continue as if the call had not been made.
        """
        self._was_cut = True
        self.closing.set()

    def how_it_ended(self) -> Parked | Exceeded | Stopped | Broken | Crashed | None:
        """Return why the visit stopped; None if it didn't.

        Raises the journal's error, or a cancellation that was swallowed.
        """
        if self._lost is not None:
            raise self._lost
        if self._was_cut:
            if is_being_cancelled():
                raise asyncio.CancelledError
            problem = "the node cut a journaled call short: give the tool a timeout instead"
            self.outcome = self.outcome or Crashed("cut_call", problem, "")
        return self.outcome

    def recall(self, slot: str, what: str, requested_hash: str, arguments: Any = None) -> Slot:
        """Return a slot's record. Stops for an operator if the slot contains a different call."""
        if self.has_ended:
            raise Unwind
        record = self.tape.slot(slot)
        self.reached.add(slot)
        if record.what is None:
            if slot in self.tape.parents:
                self.stop(differs(slot, describe_call("think"), describe_call(what, requested_hash, arguments)))
        elif record.what != what or record.requested_hash not in ("", requested_hash):
            self.stop(differs(slot, _on_record(record), describe_call(what, requested_hash, arguments)))
        return record

    def guards_for(self, tool: Tool) -> Sequence[Guard]:
        """Return the guards in force for a tool, in the order in which they run."""
        runtime = self.runtime
        values = tool.name, runtime.policies.version, runtime.limits.version
        if (found := self._guards.get(values)) is None:
            found = self._guards[values] = tuple(each for each in runtime.guards if each.is_in_force(self, tool))
        return found

    def open_path(self, slot: str, what: str) -> str:
        """Return the path below which a call numbers others. The slot itself must not contain a call."""
        record = self.tape.slot(slot)
        if record.what is not None:
            self.stop(differs(slot, _on_record(record), describe_call(what)))
        return path_of(slot)

    def left_out(self) -> Broken | None:
        """Return a stop if the node skipped a call with an unknown outcome; else None."""
        for slot, record in self.tape.in_doubt():
            if slot not in self.reached:
                return differs(slot, _on_record(record), describe_call("nothing"))
        return None

    # --- writing ------------------------------------------------------------------------------------------------------

    def buffer(self, event: e.Event) -> None:
        """Keep an event for the next commit, because nothing durable depends on it before then."""
        self._buffered.append(event)

    def take_buffered(self) -> list[e.Event]:
        """Return the buffered events for a commit made by the caller."""
        taken, self._buffered = self._buffered, []
        return taken

    async def commit(self, batch: Batch) -> Reply:
        """Write a step. Steps are written one at a time, so a read is stored before any step that depends on it.

        While this process is fenced, an intent waits and lets other writes go first. An intent is abandoned, by an
        internal exception, on a stop request or at a cap.
        """
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
        buffered, self._buffered, is_written = self._buffered, [], False
        whole = replace(batch, events=[*buffered, *batch.events]) if buffered else batch
        try:
            reply = await self._journaled(self.journal.commit(whole))
            is_written = reply.is_done
            if is_written:
                self.meter.book(whole.events, whole.usage)
        finally:
            if not is_written and not self.is_torn:
                self._buffered[:0] = buffered
        return reply

    async def check_repeat(self, slot: str, attempt: int, key: str = "", *, judged: int | None = None) -> None:
        """Check that an announced call may be sent again under the policies with which it was evaluated.

        If it may not, leaves the node by an internal exception. Raises PoliciesChanged.
        """
        async with self._writing:
            self.check_stop()
            reply: Reply = await self._journaled(self.journal.may_repeat(slot, attempt, key, judged=judged))
        if reply.is_halted and reply.stop is None:
            self.stop(Stopped("halt", key))
        if not reply.is_done:
            self.stop(Stopped(reply.stop or "overtaken"))

    async def is_held_back(self, key: str, cleared_at: float) -> bool:
        """Return whether a call under `key` is halted.

        The database isn't queried if no known halt may apply to the call and the call was known not to be halted a
        moment ago: when the halts were read, or at `cleared_at` (monotonic).
        """
        halts = self.runtime.halts
        is_fresh = time.monotonic() - max(cleared_at, halts.read_at) <= FRESH_SECONDS
        if is_fresh and not (halts.is_any_known and halts.is_about(key)):
            return False
        return await self.look_up(halts.is_halted(self.run_id, key))

    def hold_back(self, key: str) -> NoReturn:
        """Stop, because the call is halted."""
        self.stop(Stopped("halt", key))

    async def signal(self, name: str, n: int) -> e.SignalReceived | e.SignalCarried:
        """Return a signal that a call of this visit received. It may be much older than the visit."""
        known = self.tape.signals.get((name, n))
        return await self.look_up(self.journal.signal(name, n)) if known is None else known

    async def asked(self, slot: str) -> QuestionRecord:
        """Return the question at a slot, even if it is from an earlier visit."""
        if (known := self.tape.slots.get(slot)) is not None and known.gate is not None:
            return QuestionRecord(known, frozenset())
        return asked_at(slot, await self.look_up(self.journal.asked(slot)))

    async def look_up(self, asking: Coroutine[Any, Any, T]) -> T:
        """Query the journal. Only one query runs at a time, and none during a write."""
        async with self._writing:
            return await self._journaled(asking)

    async def _journaled(self, writing: Coroutine[Any, Any, T]) -> T:
        """Await the journal. Errors of a query are not shown to the node, but raised at the end of the visit."""
        try:
            return await writing
        except INTENT_REFUSED:
            raise
        except Exception as error:
            if self._lost is None or isinstance(error, StaleLease):
                self._lost = error  # a lost lease takes precedence over other errors
            self.closing.set()
            raise Unwind from error
        except BaseException:
            # The write was interrupted and may or may not have happened, so nothing later may be written.
            self.is_torn = True
            raise

    def afford(self, slot: str, attempt: int, wanted: Usage, *, is_reserved: bool = False) -> None:
        """Check that a call exceeds no cap, and reserve its usage if `is_reserved`.

        Otherwise exits by an internal exception, and people must raise the cap.
        """
        breach = None if self.meter.caps == UNLIMITED else self.meter.breach(wanted, excluding=(slot, attempt))
        if breach is not None:
            self.stop(Exceeded(slot, wanted, breach))
        if is_reserved:
            self.meter.reserve((slot, attempt), wanted)

    def boundary(self, reply: Reply) -> None:
        """Stop after a durable step if a stop is requested."""
        if reply.stop is not None:
            self.stop(Stopped(reply.stop))
        self.check_stop()

    def check_stop(self, intent: e.Event | None = None) -> None:
        """Stop if a stop is requested, or if another branch stopped the visit.

        A branch that stopped at a cap doesn't keep another branch from making a call that has a reservation.
        """
        if self.control.stop is not None:
            self.stop(Stopped(self.control.stop))
        is_capped = isinstance(self.outcome, Exceeded) and not self._was_cut and self._lost is None
        if self.has_ended and not (is_capped and intent is not None and self.meter.has_room_for(intent)):
            raise Unwind

    def park(self, *waits: WaitSpec) -> NoReturn:
        """Suspend this branch until one of `waits` is resolved.

        On the node's own branch, this parks the visit.
        """
        branch = self.places.branch
        branch.waits = waits
        if branch.under:
            raise Unwind("Parked")
        self.stop(Parked(tuple((w.id, w.kind, w.slot) for w in waits)))

    async def rest(self, seconds: float) -> None:
        """Wait in place between two tries. A stop request ends the wait and the visit."""
        ends = [asyncio.ensure_future(each.wait()) for each in (self.control.stop_asked, self.closing)]
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ends:
                each.cancel()
        self.check_stop()
