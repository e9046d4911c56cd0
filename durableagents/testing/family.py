"""The runs of a story: the first, its children and its continuations.

Each has a journal in memory and is driven by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from pydantic import ValidationError

from durableagents.testing.clock import RETRY, Clock, Killed, Stopped, StoryProblem
from durableagents.testing.hands import Hands
from durableagents.testing.minds import Minds
from durableagents.testing.recorded import Record
from ledger import events as e
from ledger.protocol import PROTOCOL
from runs.engine import memory
from runs.engine.agents import Agent, registry
from runs.engine.assistants import SCRIPTED
from runs.engine.budget import Caps, Price, Route
from runs.engine.canonical import keyed_hasher
from runs.engine.content.hooks import Screen
from runs.engine.driver import Driver
from runs.engine.errors import DefinitionError, UnknownAgent, UnknownVersion
from runs.engine.gating.timing import Terms, Time, WorkingHours
from runs.engine.guards import Guard
from runs.engine.journal import Batch, ChildSpec, Reply
from runs.engine.memory import MemoryJournal, MemoryRun, MemoryWait
from runs.engine.pipeline import in_order
from runs.engine.replay import Outcome
from runs.engine.runtime import Control, Runtime
from runs.engine.tape import Slot, Tape
from runs.engine.undoing.visit import Undone

HASHER = keyed_hasher(b"durableagents.testing")
MAX_ROUNDS = 2000
ENDED = ("completed", "failed", "cancelled")
POINTS = {
    "before_intent": "CP1",
    "before_effect": "CP2",
    "after_effect": "CP4",
    "after_record": "CP6",
    "after_node": "CP7",
    "before_wait": "CP8",
}


class DeclaredTiming:
    """Deadline rules that come only from gates.

    A story has no queues with rules of their own, and every hour counts as a working hour.
    """

    def settle(self, now: datetime, time: Time) -> Terms:
        """Return the terms of an approval that is requested now."""
        is_plain = time.on_timeout is None and not isinstance(time.within, WorkingHours)
        fields = None if is_plain else {"on_timeout": time.on_timeout or "reject", "calendar": None}
        return Terms(now + time.span, fields)


class StandIns:
    """Stand-ins for a story's secrets: a text for each name, such as `value-of-bank-api-token`."""

    async def values(self, names: Collection[str]) -> dict[str, str]:
        """Return the stand-ins by name."""
        return {name: f"value-of-{name}" for name in names}


@dataclass(eq=False)
class Member:
    """One run of the story.

    `child` is its child spec if another run started it. `told` is set once its parent was notified of its end.
    """

    run: MemoryRun
    agent: Agent
    parent: Member | None = None
    child: ChildSpec | None = None
    origin: Member | None = None
    successor: Member | None = None
    told: bool = False
    held: str = ""  # its state before it was paused; empty if it isn't paused

    @property
    def is_ready(self) -> bool:
        """Return whether the run has something to do and isn't paused."""
        return not self.held and self.run.state in ("pending", "running")

    @property
    def has_ended(self) -> bool:
        """Return whether the run has ended."""
        return self.run.state in ENDED

    def pause(self, by: str) -> None:
        """Pause the run. Everything that arrives while it is paused is kept."""
        self.run.append([e.RunPaused(by=by)])
        self.held, self.run.state = self.run.state, "paused"

    def resume(self, by: str) -> None:
        """Resume the run. It returns to its wait if nothing arrived meanwhile."""
        state, self.held = "running" if self.run.inbox else self.held, ""
        self.run.append([e.RunResumed(by=by, state=state)])
        self.run.state = state

    def keep_still(self) -> None:
        """Keep a paused run paused although something arrived for it. The run handles it once resumed."""
        if self.held and not self.has_ended and self.run.state != "paused":
            self.held, self.run.state = "running", "paused"

    def last(self, kind: type[Any]) -> Any:
        """Return the newest event of a kind, or None."""
        return next((event for event in reversed(self.run.events) if isinstance(event, kind)), None)


@dataclass
class Death:
    """A planned death of the worker at its `nth` write from now, before or after the write takes effect."""

    nth: int
    is_after: bool


class _Journal(MemoryJournal):
    """A journal on the story's clock, which triggers the story's planned deaths."""

    family: Family

    def now(self) -> Any:
        return self.family.clock.now

    async def _dying(self, writing: Any) -> Reply:
        death = self.family.deaths[0] if self.family.deaths else None
        if death is not None:
            death.nth -= 1
            if death.nth <= 0:
                self.family.deaths.pop(0)
                if not death.is_after:
                    writing.close()
                    raise Killed("before a write")
                await writing
                raise Killed("after a write")
        return await writing  # type: ignore[no-any-return]

    async def commit(self, batch: Batch) -> Reply:
        return await self._dying(super().commit(batch))

    async def leave(self, *args: Any, **kwargs: Any) -> Reply:
        return await self._dying(super().leave(*args, **kwargs))

    async def answer(self, *args: Any, **kwargs: Any) -> Reply:
        return await self._dying(super().answer(*args, **kwargs))

    async def succeed(self, *args: Any, **kwargs: Any) -> Reply:
        return await self._dying(super().succeed(*args, **kwargs))


class _Lending(Tape):
    """A visit's tape that adds values from a record when the code reads them, and journals them as reads."""

    def __init__(self, tape: Tape, lent: dict[str, tuple[str, Any]], buffer: Callable[[e.Event], None]) -> None:
        self.__dict__.update(tape.__dict__)
        self._lent, self._buffer = lent, buffer

    def slot(self, name: str) -> Slot:
        known, lent = super().slot(name), self._lent.pop(name, None)
        if lent is not None and known.now.result is None:
            value, what = lent
            event = e.ValueRead(slot=name, what=what, payload=value)
            self.add(event)
            self._buffer(event)
        return known


class _Driver(Driver):
    """The engine's driver, with values taken from a record."""

    lent: Callable[[str], dict[str, tuple[str, Any]]] | None = None

    async def _visit(self) -> Outcome | Undone:
        if self.lent is not None:
            self.tape = _Lending(self.tape, self.lent(f"{self.at.generation}.{self.at.visit}"), self._take_down)
        return await super()._visit()

    def _take_down(self, event: e.Event) -> None:
        assert self._running is not None
        self._running.buffer(event)


@dataclass
class Family:
    """Holds and drives all runs of a story."""

    clock: Clock
    hands: Hands
    minds: Minds
    prices: dict[str, Price] = field(default_factory=dict)
    screens: Sequence[Screen] = ()
    guards: Sequence[Guard] = ()
    queues: Sequence[str] | None = None
    drives_children: bool = True
    record: Record | None = None
    members: list[Member] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    kill_at: list[tuple[str, str]] = field(default_factory=list)

    # --- beginning ---

    def begin(self, agent: Agent, input: Any, *, by: str, caps: Caps, run_id: str = "") -> Member:
        """Start the first run. Raises StoryProblem for an invalid agent or input."""
        try:
            agent.validate()
        except DefinitionError as error:
            raise StoryProblem(str(error)) from None
        given = input.model_dump(mode="json") if hasattr(input, "model_dump") else input
        try:
            run = memory.start(agent, given, by=by, caps=caps)
            agent.begin(agent.input.model_validate(run.events[0].payload))
        except ValidationError as error:
            raise StoryProblem(f"the input does not fit {agent.graph_id}: {_problems(error)}") from None
        run.id = run_id or str(uuid5(NAMESPACE_URL, f"durableagents.testing|{agent.graph_id}"))
        return self._join(Member(run, agent))

    def _join(self, member: Member) -> Member:
        self.members.append(member)
        return member

    @property
    def runtime(self) -> Runtime:
        """Return the engine's runtime for a story."""
        return Runtime(
            guards=in_order(self.guards),
            hasher=HASHER,
            call_secret=b"durableagents.testing",
            request_model=self.minds.request,
            retry=RETRY,
            hit=self._hit,
            callback_url=lambda token: f"https://testing.invalid/callbacks/{token}",
            models=lambda assistant: [f"{SCRIPTED}{assistant.name}"],
            route=lambda model: Route(model, self.prices.get(model.removeprefix(SCRIPTED))),
            model_rest=0.0,
            price_patience=0.0,
            limit_patience=0.0,
            screens=self.screens,
            queues=self.queues,
            queue_timing=DeclaredTiming(),
            secrets=StandIns(),
        )

    def _hit(self, point: str, tool: str) -> None:
        if (point, tool) in self.kill_at:
            self.kill_at.remove((point, tool))
            raise Killed(f"{point} {tool}")

    # --- driving ---

    async def settle(self) -> None:
        """Drive all runs until each one waits or has ended. Dead workers are replaced at once."""
        for _ in range(MAX_ROUNDS):
            for member in self.members:
                member.keep_still()
            ready = next((member for member in self.members if member.is_ready), None)
            if ready is not None:
                await self._drive(ready)
                self._grow(ready)
            elif not (self._tell_parents() or self._ring()):
                return
        raise Stopped(f"the runs don't come to rest: after {MAX_ROUNDS} rounds there is still something to do")

    async def _drive(self, member: Member) -> None:
        claimed = member.run.claim()
        journal = _Journal(member.run, claimed.lease)
        journal.family = self
        self.minds.begin(each.run.events for each in self.members)
        driver = _Driver(member.agent, journal, self.runtime, Control(), trace_id="0" * 32)
        driver.lent = None if self.record is None else self.record.values_of
        with self.hands.on(member.agent):
            try:
                await driver.drive()
            except Killed:
                member.run.state = "running"  # the next worker takes the run

    def _grow(self, member: Member) -> None:
        """Add the runs that a run started or continues as."""
        known = {each.child.run_id for each in self.members if each.child is not None}
        for spec in member.run.children.values():
            if self.drives_children and spec.run_id not in known:
                self._join(_born(spec, member))
        successor = member.run.successor
        if successor is not None and member.successor is None:
            run = MemoryRun(
                successor.run_id, f"{successor.agent}@{successor.version}", caps=successor.caps, depth=member.run.depth
            )
            run.append(successor.events)
            run.kept = [event for event in run.events if isinstance(event, e.SignalCarried)]
            member.successor = self._join(
                Member(run, _agent(run.graph_id), parent=member.parent, child=member.child, origin=member)
            )

    def _tell_parents(self) -> bool:
        for member in self.members:
            if member.child is None or member.parent is None or member.told or not member.has_ended or member.successor:
                continue
            member.told = True
            end, state = member.run.events[-1], member.run.state
            code = end.code if isinstance(end, e.RunFailed) else ""
            output = end.payload if state == "completed" else None
            if member.parent.run.end_child(member.child.run_id, state, output=output, code=code, used=member.run.used):
                return True
        return False

    def _ring(self) -> bool:
        """Advance the clock to the next retry timer and fire that timer; return whether there was one."""
        timers = [
            (wait.spec.deadline, member, wait_id)
            for member, wait_id, wait in self.open_waits("timer")
            if "retry" in wait.spec.detail
        ]
        if not timers:
            return False
        deadline, member, wait_id = min(timers, key=lambda each: each[0])
        self.clock.move_to(deadline)
        return member.run.resolve(wait_id, "fired")

    # --- what is waited for ---

    def open_waits(self, *kinds: str) -> list[tuple[Member, UUID, MemoryWait]]:
        """Return open waits of these kinds, of all runs that haven't ended."""
        return [
            (member, wait_id, wait)
            for member in self.members
            if not member.has_ended
            for wait_id, wait in member.run.waits.items()
            if wait.resolution is None and wait.spec.kind in kinds
        ]


def _agent(graph_id: str) -> Agent:
    try:
        return registry.find(graph_id)
    except (UnknownAgent, UnknownVersion) as error:
        raise Stopped(error.detail) from None


def _born(spec: ChildSpec, parent: Member) -> Member:
    """Return a child run whose journal has its first events."""
    by = f"run:{spec.parent}"
    run = MemoryRun(spec.run_id, f"{spec.agent}@{spec.version}", caps=spec.caps, depth=spec.depth)
    events: list[e.Event] = [
        e.RunCreated(agent=spec.agent, version=spec.version, by=by, protocol=PROTOCOL, payload=spec.input),
        e.ChildOf(parent=spec.parent, parent_slot=spec.slot, parent_attempt=spec.attempt, depth=spec.depth),
    ]
    if spec.caps.stated():
        events.append(e.BudgetSet(by=by, caps=spec.caps.stated(), until=""))
    run.append([*events, *([spec.attributes] if spec.attributes is not None else [])])
    return Member(run, _agent(run.graph_id), parent=parent, child=spec)


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'value'}: {each['msg']}" for each in found)
