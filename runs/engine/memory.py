"""A journal in memory, for tests of agents and as a reference for the PostgreSQL one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from ledger import events as e
from ledger.actors import Lease
from ledger.codec import pack, unpack
from ledger.errors import StaleLease
from ledger.protocol import PROTOCOL
from runs.engine.agents import Agent
from runs.engine.budget import UNLIMITED, Caps, Meter, begun_by, debit_of, first_breach
from runs.engine.canonical import plain
from runs.engine.continuation import MemoryContinuation
from runs.engine.driver import Driver
from runs.engine.errors import ApprovalExpired, ApprovalMissing, BudgetShort, JournalBroken
from runs.engine.gating.stages import ABSTAIN, APPROVE, FAIL, REJECT, is_enough, is_staged
from runs.engine.journal import (
    NOTHING_USED,
    Batch,
    ChildSpec,
    Effects,
    Entry,
    GateOpening,
    History,
    How,
    MakeSuccessor,
    Reply,
    Snapshot,
    Successor,
    Usage,
    WaitSpec,
)
from runs.engine.policy import check, hold_to
from runs.engine.runtime import Control, Runtime
from runs.engine.undo import UNDO_NODE
from runs.engine.undoing.plan import KINDS

NO_POLICIES = 0, 0
RESOLUTIONS = {APPROVE: "approved", REJECT: "rejected", FAIL: "rejected"}


class HasVoted(ValueError):
    """This person has already voted on the question."""


@dataclass
class MemoryWait:
    """A stored wait and its resolution."""

    spec: WaitSpec
    gate: GateOpening | None = None
    resolution: str | None = None
    grant_hash: str | None = None
    grant_expires_at: datetime | None = None
    is_consumed: bool = False
    used_by: tuple[str | None, int] = ("", -1)  # slot of the call, and its latest attempt that was sent


@dataclass
class MemoryRun:
    """The complete record of one run."""

    id: str
    graph_id: str
    state: str = "pending"
    epoch: int = 0
    lease: UUID | None = None
    events: list[e.Event] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    waits: dict[UUID, MemoryWait] = field(default_factory=dict)
    snapshots: list[tuple[int, Snapshot]] = field(default_factory=list)
    used: Usage = NOTHING_USED
    caps: Caps = UNLIMITED
    policies: tuple[int, int] = NO_POLICIES  # revision and number of the policies in force
    is_pause_requested: bool = False
    is_cancel_requested: bool = False
    facts: set[tuple[str, int, str]] = field(default_factory=set)
    kept: list[e.SignalReceived | e.SignalCarried] = field(default_factory=list)
    inbox: list[e.MessageReceived] = field(default_factory=list)  # unanswered messages
    undone_elsewhere: set[tuple[str, str, int]] = field(default_factory=set)  # in its origin: run, slot, attempt
    skew: timedelta = timedelta(0)
    depth: int = 0
    children: dict[str, ChildSpec] = field(default_factory=dict)  # by the child's id
    successor: Successor | None = None  # the run that continues this one

    @property
    def at_work(self) -> str:  # the state while a worker holds the run
        return "compensating" if any(isinstance(event, e.UndoBegun) for event in self.events) else "running"

    def append(self, events: Sequence[e.Event]) -> None:
        """Append all events or none. Raises ValueError for a duplicate fact, like the database's unique index."""
        # Events are encoded and decoded, so that nothing mutable is shared and only storable data is accepted.
        stored: list[e.Event] = []
        facts: set[tuple[str, int, str]] = set()
        for event in events:
            stored.append(e.decode(e.encode_clear(event), unpack(pack(event.payload, None))))
            if event.slot is None or (named := event.fact) is None:
                continue
            fact = event.slot, event.attempt, named
            if fact in self.facts or fact in facts:
                raise ValueError(f"{fact} is already recorded")
            facts.add(fact)
        self.facts.update(facts)
        self.events.extend(stored)

    def claim(self) -> MemoryJournal:
        """Claim the run under a new epoch, even if another journal holds it."""
        self.epoch, self.lease, self.state = self.epoch + 1, uuid4(), self.at_work
        self.append([e.RunClaimed(epoch=self.epoch, worker="memory", host="memory", pid=0, cause="start")])
        return MemoryJournal(self, Lease(self.epoch, self.lease))

    def resolve(
        self, wait_id: UUID, resolution: str, *, event: e.Event | None = None, grant_hash: str | None = None
    ) -> bool:
        """Resolve a wait. Return False if it was already resolved."""
        wait = self.waits[wait_id]
        if wait.resolution is not None:
            return False
        wait.resolution, wait.grant_hash = resolution, grant_hash
        s = wait.spec
        self.append(
            [event]
            if event
            else [e.WaitResolved(slot=s.slot, attempt=s.attempt, wait=s.kind, n=s.n, resolution=resolution, by="test")]
        )
        if self.lease is None:
            self.state = self.at_work
        return True

    def decide(
        self,
        verdict: str,
        *,
        by: str = "user:finance",
        role: str = "approver_finance",
        justification: str = "as quoted",
        slot: str = "",
    ) -> None:
        """Decide the only open gate, or the one at `slot`, with `approved`, `rejected`, `fail` or `abstain`."""
        gates = ((i, w) for i, w in self.waits.items() if w.gate is not None and w.resolution is None)
        wait_id = next(i for i, w in gates if slot in ("", w.spec.slot))
        resolution = {"approved": APPROVE, "rejected": REJECT}.get(verdict, verdict)
        self.record_verdict(wait_id, resolution, by=by, role=role, justification=justification)

    def record_verdict(self, wait_id: UUID, verdict: str, *, by: str, role: str, justification: str) -> bool:
        """Record a person's verdict on an open gate, as `approvals.services` does. Return whether that decided the
        gate.

        Raises HasVoted.
        """
        spec, gate = self.waits[wait_id].spec, self.waits[wait_id].gate
        assert gate is not None
        approval_id, is_yes = str(gate.approval_id), verdict == APPROVE
        about: dict[str, Any] = {
            "slot": spec.slot,
            "n": spec.n,
            "approval_id": approval_id,
            "plan_hash": gate.plan_hash,
            "by": by,
            "role": role,
        }
        [question] = [x for x in self.events if isinstance(x, e.ApprovalRequested) and x.approval_id == approval_id]
        votes = [x for x in self.events if isinstance(x, e.ApprovalVoted) and x.slot == spec.slot]
        person, payload = _person_of(by), {"justification": justification}
        if any(person in x.people and x.n == spec.n for x in votes):
            raise HasVoted(f"{by} has already voted on this question")
        if is_staged(question.payload) or verdict == ABSTAIN:
            vote = e.ApprovalVoted(**about, verdict=verdict, person=person, payload=payload)
            self.append([vote])
            votes.append(vote)
        if verdict == ABSTAIN or (is_yes and is_staged(question.payload) and not is_enough(question, votes)):
            return False
        ends = RESOLUTIONS.get(verdict, verdict)  # the verdict of a deadline is already the word "expired"
        then = {"then": FAIL} if verdict == FAIL else {}
        event = e.ApprovalDecided(**about, verdict=ends, payload=payload | then)
        self.resolve(wait_id, ends, event=event, grant_hash=gate.plan_hash if is_yes else None)
        return True

    def signal(self, name: str, payload: Any = None, *, by: str = "key:shop") -> int:
        """Send a signal to the run, like `runs.services.signals`. Return its number among those with its name."""
        n = 1 + sum(isinstance(x, (e.SignalReceived, e.SignalCarried)) and x.name == name for x in self.events)
        self.append([e.SignalReceived(name=name, n=n, by=by, payload=payload)])
        self.kept.append(self.events[-1])  # type: ignore[arg-type]
        self.hand_over(name)
        return n

    def message(self, name: str, request: Any, *, by: str = "user:olga") -> int:
        """Send a message to the run, like `runs.services.messages` after its checks. Return its number."""
        n = 1 + sum(isinstance(x, e.MessageReceived) for x in self.events)
        self.append([e.MessageReceived(name=name, n=n, by=by, payload=request)])
        self.inbox.append(self.events[-1])  # type: ignore[arg-type]
        if self.lease is None and self.state.startswith("waiting"):
            self.state = "running"
        return n

    def raise_budget(self, caps: Caps, *, by: str = "user:olga") -> None:
        """Set new caps and resolve the waits for a higher budget."""
        self.caps = caps
        self.append([e.BudgetSet(by=by, caps=caps.stated(), until="")])
        for wait in [w for w in self.open_waits() if w.spec.kind == "budget"]:
            self.resolve(wait.spec.id, "raised")

    def end_child(
        self, child: str, state: str = "completed", *, output: Any = None, code: str = "", used: Usage = NOTHING_USED
    ) -> bool:
        """Report the end of a child, like `runs.services.families`. Return False if it was already reported."""
        spec = self.children[child]
        payload = {"output": output} if state == "completed" else {"message": code}
        event = e.ChildEnded(
            slot=spec.slot,
            attempt=spec.attempt,
            child=child,
            agent=f"{spec.agent}@{spec.version}",
            state=state,
            code=code,
            unpriced_calls=0,
            payload=payload,
            **asdict(used),
        )
        wait = WaitSpec(self.id, spec.slot, spec.attempt, "child", 0, datetime.now(UTC))
        is_told = self.resolve(wait.id, state, event=event)
        self.used += used if is_told else NOTHING_USED
        return is_told

    def hand_over(self, name: str) -> None:
        """Deliver the oldest undelivered signal with this name to the call that has waited for it longest."""
        waiting = [w for w in self.open_waits() if w.spec.kind == "signal" and w.spec.detail["name"] == name]
        came = [x for x in self.kept if x.name == name]
        if waiting and came:
            self.kept.remove(came[0])
            s = waiting[0].spec
            self.resolve(s.id, "received", event=e.SignalTaken(slot=s.slot, attempt=s.attempt, name=name, n=came[0].n))

    def answer(self, answer: Any, *, by: str = "user:olga", role: str = "operator", slot: str = "") -> None:
        """Answer the only open question, or the one at `slot`."""
        question = next(w.spec for w in self.open_waits() if w.spec.kind == "input" and slot in ("", w.spec.slot))
        event = e.InputAnswered(
            slot=question.slot, attempt=question.attempt, n=question.n, by=by, role=role, payload={"answer": answer}
        )
        self.resolve(question.id, "answered", event=event)

    def open_waits(self) -> list[MemoryWait]:
        return [w for w in self.waits.values() if w.resolution is None]


def _person_of(by: str) -> int:
    """Return a stable number for a person, since there are no accounts. The sign-in method is ignored."""
    return int.from_bytes(hashlib.sha256(by.partition(":")[2].encode()).digest()[:6])


class MemoryJournal(MemoryContinuation):
    """The `Journal` interface over a MemoryRun."""

    def __init__(self, run: MemoryRun, lease: Lease) -> None:
        self.run, self.lease, self.run_id = run, lease, run.id

    @property
    def seq(self) -> int:
        return len(self.run.events)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.run.skew

    async def load(self) -> History:
        self._fence()
        seq, snapshot = self.run.snapshots[-1] if self.run.snapshots else (0, None)
        run = self.run
        return History(
            snapshot,
            list(run.events[seq:]),
            run.events[0],
            self._reply(),
            run.caps,
            run.used,
            run.depth,
            forked=next((x for x in run.events[:4] if isinstance(x, e.RunForked)), None),
        )

    async def signal(self, name: str, n: int) -> e.SignalReceived | e.SignalCarried:
        self._fence()
        for event in self.run.events:
            if isinstance(event, (e.SignalReceived, e.SignalCarried)) and (event.name, event.n) == (name, n):
                return event
        raise JournalBroken(f"there is no signal {name} with the number {n}")

    async def models(self) -> list[e.ModelsChosen]:
        self._fence()
        return [event for event in self.run.events if isinstance(event, e.ModelsChosen)]

    async def inbox(self) -> e.MessageReceived | None:
        self._fence()
        return self.run.inbox[0] if self.run.inbox else None

    async def answer(self, n: int, outcome: str, events: Sequence[e.Event], *, waits: Sequence[UUID] = ()) -> Reply:
        self._fence()
        run = self.run
        if any(run.waits[i].resolution is not None for i in waits):
            return self._reply(is_done=False)
        if not run.inbox or run.inbox[0].n != n:
            raise ValueError(f"message {n} is not the next one to be answered")
        run.append(events)
        run.inbox.pop(0)
        for i in waits:
            run.waits[i].resolution = "received"
        return self._reply()

    async def commit(self, batch: Batch) -> Reply:
        self._fence()
        slot, attempt = _call_of(batch)
        is_stopping = batch.is_intent and (self.run.is_pause_requested or self.run.is_cancel_requested)
        is_contradicted = batch.is_intent and attempt > 0 and self._is_contradicted(slot, attempt)
        if is_stopping or is_contradicted or self._is_answered(batch.events):
            return self._reply(is_done=False)
        if batch.is_intent:
            self._intend(batch, (slot, attempt))
        else:
            self._record(batch)
        return self._reply()

    def _intend(self, batch: Batch, call: tuple[str | None, int]) -> None:
        run, (slot, attempt) = self.run, call
        if batch.grant is None and attempt > 0:
            earlier = [x for x in run.events if isinstance(x, e.ToolInvoked) and x.slot == slot and x.attempt < attempt]
            if any(x.grant for x in earlier):
                raise ApprovalMissing(f"slot {slot} was sent with an approval earlier, but has none now")
        for event in batch.events if run.caps != UNLIMITED else ():
            wanted = begun_by(event)
            breach = None if wanted is None else first_breach(run.caps, run.used, NOTHING_USED, wanted)
            if breach is not None:
                raise BudgetShort(
                    f"the budget of run {self.run_id} does not have enough {breach.resource} left for this"
                )
        if run.policies != NO_POLICIES:
            check(*run.policies, batch.events)
        used = None if batch.grant is None else self._granted(*batch.grant, call)
        self._write(batch)
        if used is not None:
            used.is_consumed, used.used_by = True, call

    def _record(self, batch: Batch) -> None:
        self._write(batch)
        self.run.used += batch.usage
        for event in batch.events:
            if isinstance(event, e.BudgetDebited):
                self.run.used += debit_of(event)
            if isinstance(event, (e.ToolFailed, e.ToolReconciled)):
                self._settle_callback(event.slot, event.attempt)
        if batch.snapshot is not None:
            self.run.snapshots.append((self.seq, batch.snapshot))
            if batch.snapshot.node == UNDO_NODE:
                self.run.state, self.run.is_cancel_requested, self.run.caps = "compensating", False, UNLIMITED

    def _settle_callback(self, slot: str | None, attempt: int) -> None:
        for wait in self.run.open_waits():
            if (wait.spec.slot, wait.spec.attempt, wait.spec.kind) == (slot, attempt, "webhook"):
                wait.resolution = "settled"

    async def leave(
        self, how: How, events: Sequence[e.Event], *, state: str, waits: Sequence[UUID] = (), error: str = ""
    ) -> Reply:
        return self._let_go(how, events, state=state, waits=waits)

    def _let_go(self, how: How, events: Sequence[e.Event], *, state: str, waits: Sequence[UUID] = ()) -> Reply:
        self._fence()
        run = self.run
        resolved = any(run.waits[i].resolution is not None for i in waits)
        if (
            (how == "park" and (run.is_pause_requested or run.is_cancel_requested or run.inbox))
            or (how in ("park", "settle") and resolved)
            or (how == "budget" and (run.is_pause_requested or run.is_cancel_requested or resolved))
            or (how == "pause" and (run.is_cancel_requested or not run.is_pause_requested))
            or (how == "end" and state != "cancelled" and run.is_cancel_requested)
        ):
            return self._reply(is_done=False)
        run.append(events)
        run.state, run.lease = state, None
        if how in ("pause", "end"):
            run.is_pause_requested = False
        if how == "end":
            run.is_cancel_requested = False
            run.inbox.clear()  # the senders are told that the run has ended
            for wait in run.open_waits():
                wait.resolution = "withdrawn"
        return self._reply()

    async def effects(self) -> Effects:
        self._fence()
        return Effects([event for event in self.run.events if isinstance(event, KINDS)])

    async def succeed(self, make: MakeSuccessor) -> Reply:
        events, successor = make(await self.inherited())
        run = self.run
        left = Meter(run.caps, run.used).left()
        ended_children = {event.child for event in run.events if isinstance(event, e.ChildEnded)}
        is_open = (
            run.open_waits()
            or run.children.keys() - ended_children
            or (run.inbox and successor.carried_on.how == "renewal")
        )
        if self._reply().stop is not None or is_open or successor.left != left:
            return self._reply(is_done=False)
        reply = self._let_go("end", events, state="completed")
        run.successor = successor
        return reply

    def _fence(self) -> None:
        if self.run.lease != self.lease.token or self.run.epoch != self.lease.epoch:
            text = f"run {self.run_id} is at epoch {self.run.epoch}"
            raise StaleLease(f"{text}, but the writer has epoch {self.lease.epoch}")

    async def set_aside(self, events: Sequence[e.Event], key: str = "") -> Reply:
        return self._let_go("release", events, state=self.run.state)

    async def may_repeat(self, slot: str, attempt: int, key: str = "", *, judged: int | None = None) -> Reply:
        self._fence()
        is_done = self._reply().stop is None and not self._has_outcome(slot, attempt)
        hold_to(*self.run.policies, judged if is_done else self.run.policies[0])
        return self._reply(is_done=is_done)

    def _is_answered(self, events: Sequence[e.Event]) -> bool:
        for event in events:
            is_question = isinstance(event, e.WaitOpened) and event.wait == "reconcile" and not self._is_refused(event)
            if (is_question or isinstance(event, _FIRST_ONE_STANDS)) and self._has_outcome(event.slot, event.attempt):
                return True
        return False

    def _is_refused(self, event: e.Event) -> bool:
        """Return whether the event's call was refused. A late result may contradict a refusal."""
        call = event.slot, event.attempt
        return any(isinstance(x, e.ToolFailed) and (x.slot, x.attempt) == call for x in self.run.events)

    def _has_outcome(self, slot: str | None, attempt: int) -> bool:
        for event in self.run.events:
            if event.slot != slot or event.attempt != attempt:
                continue
            if _is_outcome(event):
                return True
        return False

    def _is_contradicted(self, slot: str | None, attempt: int) -> bool:
        """Return whether a late result says that an earlier attempt happened, and no one has denied that since."""
        contradicted: set[int] = set()
        for x in (x for x in self.run.events if slot is not None and x.slot == slot and x.attempt < attempt):
            if _is_testimony(x):
                contradicted.add(x.attempt)
            elif isinstance(x, e.ToolReconciled) and x.verdict == "did_not":
                contradicted.discard(x.attempt)
        return bool(contradicted)

    def _granted(self, slot: str, plan_hash: str, call: tuple[str | None, int]) -> MemoryWait:
        fitting = [
            w
            for w in self.run.waits.values()
            if w.spec.slot == slot and w.spec.kind == "approval" and w.resolution == "approved"
        ]
        fitting = [
            w for w in fitting if w.grant_hash == plan_hash and (not w.is_consumed or self._may_be_used_again(w, call))
        ]
        for wait in fitting:
            if wait.grant_expires_at is None or wait.grant_expires_at > self.now():
                return wait
        if fitting:
            raise ApprovalExpired(f"the approval of slot {slot} expired before it was used for this")
        raise ApprovalMissing(f"slot {slot} has no unused approval for these bytes")

    def _may_be_used_again(self, wait: MemoryWait, call: tuple[str | None, int]) -> bool:
        """Return whether a further attempt may use the grant again, because no earlier attempt had an effect."""
        slot, attempt = call
        if wait.used_by[0] != slot or wait.used_by[1] >= attempt:
            return False
        earlier = [x for x in self.run.events if x.slot == slot and x.attempt < attempt]
        undone = {
            x.attempt
            for x in earlier
            if isinstance(x, e.ToolFailed) or (isinstance(x, e.ToolReconciled) and x.verdict == "did_not")
        }
        happened = any((_is_outcome(x) and not isinstance(x, e.ToolFailed)) or _is_testimony(x) for x in earlier)
        return undone == set(range(attempt)) and not happened

    def _write(self, batch: Batch) -> None:
        wait = batch.wait
        self.run.append(batch.events)
        if batch.child is not None:
            self.run.children[batch.child.run_id] = batch.child
        self.run.entries.extend(batch.entries)
        known = None if wait is None else self.run.waits.get(wait.id)
        if wait is not None and known is None:
            self.run.waits[wait.id] = MemoryWait(wait, batch.gate)
            if wait.kind == "signal":
                self.run.hand_over(wait.detail["name"])
        elif wait is not None and known is not None and known.resolution is None:
            known.spec = replace(known.spec, deadline=wait.deadline)

    def _reply(self, *, is_done: bool = True) -> Reply:
        run = self.run
        return Reply(len(run.events), self.now(), run.is_pause_requested, run.is_cancel_requested, False, is_done)


# These events are not written if the call's outcome is already recorded.
_FIRST_ONE_STANDS = (e.ToolRedispatched, e.ToolOutcomeUnknown, e.ToolReconciled, e.ToolFailed, e.ToolReturned)


def _is_outcome(event: e.Event) -> bool:
    return event.fact == "result" or (isinstance(event, e.ToolReconciled) and event.verdict == "happened")


def _is_testimony(event: e.Event) -> bool:
    """Return whether the event is a late result that says that an attempt happened or was accepted."""
    is_answer = isinstance(event, e.ToolAnsweredLate) and event.outcome != "refused"
    return isinstance(event, e.CallbackArrivedLate) or is_answer


def _call_of(batch: Batch) -> tuple[str | None, int]:
    for event in batch.events:
        if isinstance(event, e.ToolInvoked):
            return event.slot, event.attempt
    return None, 0


def start(agent: Agent, input: Any, *, by: str = "user:test", caps: Caps = UNLIMITED) -> MemoryRun:
    """Create a run in memory, like `runs.services.lifecycle.start` in the database."""
    run = MemoryRun(str(uuid4()), agent.graph_id, caps=caps)
    checked = plain(agent.input.model_validate(input))
    run.append([e.RunCreated(agent=agent.name, version=agent.version, by=by, protocol=PROTOCOL, payload=checked)])
    return run


async def drive(agent: Agent, run: MemoryRun, runtime: Runtime, control: Control | None = None) -> str:
    """Claim and drive a run once, as a worker does. Return how the run was released."""
    return await Driver(agent, run.claim(), runtime, control or Control(), trace_id="0" * 32).drive()
