"""One visit of one node: the numbering of its calls, its recorded past, and how it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ledger import events as e
from ledger.errors import StaleLease
from runs.engine.agents import Agent
from runs.engine.canonical import Hasher
from runs.engine.errors import ApprovalMissing, MisusedContext
from runs.engine.journal import NOTHING_USED, Entry, GateOpening, Journal, Reply, Usage, WaitSpec
from runs.engine.outcomes import (
    WEAKEST_FIRST,
    Broken,
    Crashed,
    LateAnswer,
    Parked,
    Stopped,
    StopReason,
    Unwind,
    differs,
    told,
)
from runs.engine.retry import RetryPolicy
from runs.engine.tape import Slot, Tape

if TYPE_CHECKING:
    from runs.engine.loop import ModelTurn

log = logging.getLogger("durableagents.engine")

FENCED_REST_SECONDS = 0.05
_STRONGEST_FIRST: tuple[StopReason, ...] = ("cancel", "hold", "pause", "drain")
T = TypeVar("T")


@dataclass(eq=False)
class Branch:
    """One line of calls within a visit: the node's own, or one of a `gather`. It numbers its calls below a path of its own."""

    under: str = ""
    calls: int = 0
    waits: tuple[WaitSpec, ...] = ()  # what it can't go on without
    result: Any = None
    error: BaseException | None = None


@dataclass(frozen=True)
class Runtime:
    """What the shell lends the engine. `hit` is called at each named crash point with the point and the tool; `is_fenced` says that
    this process has lost its place among the workers, and must send nothing until it has it back. `hand_in` takes an answer that
    this process may no longer record. `queues` are those that somebody decides, `people` the queues and roles that may be asked; None:
    any."""

    hasher: Hasher
    request_model: Callable[..., Coroutine[Any, Any, ModelTurn]]
    callback_url: Callable[[str], str]
    hit: Callable[[str, str], None] = lambda point, tool: None
    threads: Executor | None = None
    is_fenced: Callable[[], bool] = lambda: False
    hand_in: Callable[[LateAnswer], None] = lambda late: None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    queues: Collection[str] | None = None
    people: Collection[str] | None = None


class Control:
    """The shell's hand on a run that is being driven: ask it to stop at the next step boundary. Same event loop only."""

    def __init__(self) -> None:
        self._reasons: set[StopReason] = set()
        self.unsafe_calls = 0  # in flight now: what is cut there is in doubt for good, so a drain lets it come to its own end
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()

    @property
    def stop(self) -> StopReason | None:
        """What was asked for, the strongest wish first."""
        if not self._reasons:  # asked at each boundary, and nearly always so
            return None
        return next((r for r in _STRONGEST_FIRST if r in self._reasons), None)

    def ask(self, reason: StopReason) -> None:
        """Ask for a stop."""
        self._reasons.add(reason)
        self.asked.set()
        if reason == "cancel":
            self.cancelled.set()

    @contextmanager
    def unsafe_call(self) -> Iterator[None]:
        """From before an unsafe call leaves until its outcome is on record."""
        self.unsafe_calls += 1
        try:
            yield
        finally:
            self.unsafe_calls -= 1

    def take_back_pause(self) -> None:
        """The run was resumed before it came to the boundary; other wishes stand."""
        self._reasons.discard("pause")
        if not self._reasons:
            self.asked.clear()


def is_being_cancelled() -> bool:
    """Whether somebody wants the current task to end. A CancelledError without that is a stray one, of a tool's own making."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _of(record: Slot) -> dict[str, Any]:
    return told(record.what or "", record.requested_hash or "", record.arguments)


class Visit:
    """The running visit: hands out slots, writes through the journal, and unwinds when it must."""

    def __init__(
        self, agent: Agent, journal: Journal, runtime: Runtime, control: Control, tape: Tape,
        *, node: str, number: int, generation: int, created: e.RunCreated, trace_id: str,
    ) -> None:  # fmt: skip
        self.agent, self.journal, self.runtime, self.control, self.tape = (agent, journal, runtime, control, tape)
        self.node, self.number, self.generation, self.created, self.trace_id = (
            node,
            number,
            generation,
            created,
            trace_id,
        )
        self._branches = {asyncio.current_task(): Branch()}
        self._closing = asyncio.Event()
        self._writing = asyncio.Lock()
        self.outcome: Parked | Stopped | Broken | Crashed | None = None
        self.is_over = False
        self._lost: Exception | None = None
        self._was_cut = self._is_torn = False
        self._asked: set[str] = set()
        self._reads: list[e.Event] = []

    @property
    def run_id(self) -> str:
        """The run's id, as people and the outside see it."""
        return self.journal.run_id

    def next_slot(self) -> str:
        """The identity of the next call of the branch that runs now. Each branch numbers its own, so none can renumber another."""
        branch = self.branch
        if self.is_over:
            raise MisusedContext(f"this context belongs to the visit of {self.node!r}, which has ended")
        if self.has_ended or branch.waits:
            raise Unwind
        branch.calls += 1
        return self.slot_at(f"{branch.under}{branch.calls}")

    @property
    def branch(self) -> Branch:
        """The branch whose task runs now. Raises MisusedContext for a task that the visit doesn't know."""
        found = self._branches.get(asyncio.current_task())
        if found is None:
            raise MisusedContext(
                "journaled calls must come from the node's own task: use ctx.gather, not asyncio.create_task"
            )
        return found

    @contextmanager
    def running(self, branch: Branch) -> Iterator[None]:
        """The current task is a branch of this visit."""
        task = asyncio.current_task()
        self._branches[task] = branch
        try:
            yield
        finally:
            del self._branches[task]

    def slot_at(self, path: str) -> str:
        """The slot of a path of this visit."""
        return f"{self.generation}.{self.number}/{path}"

    def path_of(self, slot: str) -> str:
        """The path within the visit, to number calls below it."""
        return slot.partition("/")[2]

    def unwind(self, outcome: Parked | Stopped | Broken | Crashed) -> Unwind:
        """Close the visit with an outcome; to be raised. Of several branches' outcomes the strongest stands, of equals the first."""
        strength = WEAKEST_FIRST.index(type(outcome))
        if self.outcome is None or strength > WEAKEST_FIRST.index(type(self.outcome)):
            self.outcome = outcome
        self._closing.set()
        return Unwind(type(self.outcome).__name__)

    @property
    def has_lost_lease(self) -> bool:
        """Whether somebody else has the run by now, so that nothing of this visit can be recorded any more."""
        return isinstance(self._lost, StaleLease)

    @property
    def has_ended(self) -> bool:
        """Whether the visit stops, for whatever reason: what is in flight is still recorded, and nothing more is begun."""
        return self.outcome is not None or self._was_cut or self._lost is not None

    @contextmanager
    def step(self) -> Iterator[None]:
        """One journaled call. A node that cuts it short, with a timeout of its own, can't go on as if it had not been made."""
        try:
            yield
        except asyncio.CancelledError:
            self._was_cut = True
            self._closing.set()
            raise

    def how_it_ended(self) -> Parked | Stopped | Broken | Crashed | None:
        """Why the visit stopped, if it did, whatever the node made of that. Raises what the journal raised, or the cancellation
        that the node swallowed."""
        if self._lost is not None:
            raise self._lost
        if self._was_cut:
            if is_being_cancelled():
                raise asyncio.CancelledError
            told = "the node cut a journaled call short: give the tool a timeout instead"
            self.outcome = self.outcome or Crashed("cut_call", told, "")
        return self.outcome

    def remember(self, slot: str, what: str, requested_hash: str, arguments: Any = None) -> Slot:
        """The slot's record, after checking that this is the call that it holds. Unwinds to an operator if it isn't."""
        if self.has_ended:
            raise Unwind
        record = self.tape.slot(slot)
        self._asked.add(slot)
        if record.what is None and slot in self.tape.parents:
            raise self.unwind(differs(slot, told("think"), told(what, requested_hash, arguments)))
        if record.what is None or (record.what == what and record.requested_hash in ("", requested_hash)):
            return record
        raise self.unwind(differs(slot, _of(record), told(what, requested_hash, arguments)))

    def open_path(self, slot: str, what: str) -> str:
        """The path of a call that numbers others below it, after checking that the slot holds no call of its own."""
        record = self.tape.slot(slot)
        if record.what is not None:
            raise self.unwind(differs(slot, _of(record), told(what)))
        return self.path_of(slot)

    def left_out(self) -> Broken | None:
        """A call in doubt that the node didn't come to this time: it must not be passed over."""
        for slot, record in self.tape.in_doubt():
            if slot not in self._asked:
                return differs(slot, _of(record), told("nothing"))
        return None

    def later(self, event: e.Event) -> None:
        """Let an event ride in the next transaction: nothing durable depends on it before."""
        self._reads.append(event)

    def riding(self) -> list[e.Event]:
        """Take what waits for a ride."""
        reads, self._reads = self._reads, []
        return reads

    async def intend(
        self,
        *events: e.Event,
        entry: Entry | None = None,
        grant: tuple[str, str] | None = None,
        wait: WaitSpec | None = None,
    ) -> None:
        """TX1. Unwinds, with nothing written, when people asked for a stop."""
        await self.unfenced()
        async with self._writing:
            self.check_stop()
            self.runtime.hit("CP1", entry.tool if entry else "")
            reply = await self._write(
                lambda reads: self.journal.intend([*reads, *events], entry=entry, grant=grant, wait=wait)
            )
        if not reply.is_done:
            raise self.unwind(Stopped(reply.stop or "overtaken"))

    async def check_repeat(self, slot: str, attempt: int) -> None:
        """Whether a call that is announced already may go out once more. Unwinds if not."""
        async with self._writing:
            self.check_stop()
            reply: Reply = await self._kept(self.journal.may_repeat(slot, attempt))
        if not reply.is_done:
            raise self.unwind(Stopped(reply.stop or "overtaken"))

    async def unfenced(self) -> None:
        """Wait until this process has its place among the workers: without it nothing new begins."""
        while self.runtime.is_fenced():
            await self.rest(FENCED_REST_SECONDS)

    async def record(
        self,
        *events: e.Event,
        entries: Sequence[Entry] = (),
        wait: WaitSpec | None = None,
        gate: GateOpening | None = None,
        usage: Usage = NOTHING_USED,
    ) -> Reply:
        """TX2. The caller has its fact on record when this returns."""
        async with self._writing:
            return await self._write(
                lambda reads: self.journal.record(
                    [*reads, *events], entries=entries, wait=wait, gate=gate, usage=usage
                )
            )

    async def _write(self, write: Callable[[list[e.Event]], Coroutine[Any, Any, Reply]]) -> Reply:
        """One write at a time, each with what waits for a ride: what a branch read is on disk before what it made of it."""
        if self._is_torn:
            raise Unwind
        reads, is_written = self.riding(), False
        try:
            reply = await self._kept(write(reads))
            is_written = reply.is_done
            return reply
        finally:
            if not is_written:
                self._reads[:0] = reads

    async def signal(self, name: str, n: int) -> e.SignalReceived:
        """A signal that a call of this visit took; it may have come long before the visit."""
        known = self.tape.signals.get((name, n))
        if known is None:
            async with self._writing:
                known = await self._kept(self.journal.signal(name, n))
        return known

    async def _kept(self, asking: Coroutine[Any, Any, T]) -> T:
        """Nothing that goes wrong with the journal is the node's business: it unwinds, and is raised again at the visit's end."""
        try:
            return await asking
        except ApprovalMissing:
            raise
        except Exception as error:
            self._lost = self._lost or error
            self._closing.set()
            raise Unwind from error
        except BaseException:
            # Cut off in the middle: nobody knows whether it was written, so nothing may be written that came after it.
            self._is_torn = True
            raise

    def boundary(self, reply: Reply) -> None:
        """A step is durable: stop here if anybody asked for it."""
        if reply.stop is not None:
            raise self.unwind(Stopped(reply.stop))
        self.check_stop()

    def check_stop(self) -> None:
        """Stop if the shell asked for it, or if another branch had to."""
        if self.control.stop is not None:
            raise self.unwind(Stopped(self.control.stop))
        if self.has_ended:
            raise Unwind

    def park(self, *waits: WaitSpec) -> Unwind:
        """Nothing more to do in this branch until one of these is resolved; to be raised. The visit parks when its node must."""
        branch = self.branch
        branch.waits = waits
        if branch.under:
            return Unwind("Parked")
        return self.unwind(Parked(tuple((w.id, w.kind, w.slot) for w in waits)))

    async def interruptible(self, asking: Coroutine[Any, Any, T]) -> T:
        """Await something that has no effect, such as a model request; a cancel doesn't wait for its answer."""
        answer = asyncio.ensure_future(asking)
        cancelled = asyncio.ensure_future(self.control.cancelled.wait())
        try:
            await asyncio.wait({answer, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self.check_stop()
            return await answer
        finally:
            answer.cancel()
            cancelled.cancel()

    async def rest(self, seconds: float) -> None:
        """Wait in place between two tries; a stop ends the wait and the visit."""
        ends = [asyncio.ensure_future(each.wait()) for each in (self.control.asked, self._closing)]
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ends:
                each.cancel()
        self.check_stop()
