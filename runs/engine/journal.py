"""The interface between the engine and a run's journal.

Both implementations, in memory and PostgreSQL, pass the same test suite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol, Self
from uuid import NAMESPACE_URL, UUID, uuid5

from ledger.actors import Lease
from ledger.entries import Entry as Entry
from ledger.events import (
    AnswerTakenOver,
    AttributesSet,
    Event,
    MessageReceived,
    ModelsChosen,
    RunCarriedOn,
    RunForked,
    SignalCarried,
    SignalReceived,
    ToolInvoked,
    ToolReconciled,
    WaitOpened,
)
from runs.engine.budget import NOTHING_USED as NOTHING_USED
from runs.engine.budget import UNLIMITED, Caps
from runs.engine.budget import Usage as Usage

_A_DAY = timedelta(days=1)
ATTENTION = timedelta(days=7)  # time for a person to settle outcomes that only people can settle
How = Literal["park", "settle", "pause", "budget", "release", "end"]


@dataclass(frozen=True, slots=True)
class Reply:
    """The journal's answer to a write.

    If `is_done` is false, nothing was written. A flag tells why; if none is set, the call or wait was already resolved.
    """

    seq: int
    at: datetime
    is_pause_requested: bool = False
    is_cancel_requested: bool = False
    is_on_hold: bool = False
    is_done: bool = True
    is_halted: bool = False

    @property
    def stop(self) -> Literal["cancel", "hold", "pause"] | None:
        """The strongest pending request; None if there is none."""
        if self.is_cancel_requested:
            return "cancel"
        if self.is_on_hold:
            return "hold"
        return "pause" if self.is_pause_requested else None


def deadline_in(now: datetime, within: timedelta) -> datetime:
    """Return the time `within` after `now`. Raises ValueError if out of range."""
    try:
        return in_range(now + within)
    except OverflowError:
        raise ValueError(f"{within} from now is beyond the year 9999: wait for less") from None


def in_range(deadline: datetime) -> datetime:
    """Return the deadline in UTC. Raises ValueError outside the years 1 to 9999, or within a day of either limit.

    A database could store a deadline within a day of a limit, but Python couldn't read it back in every time zone.
    """
    try:
        in_utc = deadline.astimezone(UTC)
        if datetime.min.replace(tzinfo=UTC) + _A_DAY <= in_utc <= datetime.max.replace(tzinfo=UTC) - _A_DAY:
            return in_utc
    except OverflowError:
        pass
    raise ValueError(f"{deadline.isoformat()} is not within the years 1 to 9999 in UTC: give an earlier deadline")


@dataclass(frozen=True, slots=True)
class WaitSpec:
    """One wait. `detail` is short text for people.

    Raises ValueError for a deadline that couldn't be read back.
    """

    run_id: str
    slot: str
    attempt: int
    kind: str
    n: int
    deadline: datetime
    detail: dict[str, Any] = field(default_factory=dict)
    token_hash: bytes | None = None

    def __post_init__(self) -> None:
        in_range(self.deadline)

    @property
    def id(self) -> UUID:
        """The wait's id, derived from its parts so that a replay gets the same id."""
        return uuid5(NAMESPACE_URL, f"{self.run_id}|{self.slot}|{self.attempt}|{self.kind}|{self.n}")

    def opened(self, payload: Any = None) -> WaitOpened:
        """Return the event that opens the wait."""
        return WaitOpened(
            slot=self.slot,
            attempt=self.attempt,
            wait=self.kind,
            n=self.n,
            deadline=self.deadline.isoformat(),
            payload=payload,
        )


def detail_of(opened: WaitOpened) -> dict[str, Any]:
    """Return the detail for a question's row, taken from its event; empty for other waits."""
    details = opened.payload if opened.wait == "input" and isinstance(opened.payload, dict) else {}
    return {name: value for name, value in details.items() if name not in ("call", "hash", "error")}


@dataclass(frozen=True, slots=True)
class Intent:
    """An attempt at a tool call, with the data that identifies it in all its ledger entries."""

    slot: str
    attempt: int
    tool: str
    replay_class: str
    key: str | None
    input_hash: str

    @classmethod
    def of(cls, event: ToolInvoked) -> Self:
        """Return the intent as recorded in an event."""
        key = event.payload.get("key") if isinstance(event.payload, dict) else None
        assert event.slot is not None
        return cls(event.slot, event.attempt, event.tool, event.replay_class, key, event.requested_hash)

    def entry(self, fact: str, *, external_id: str | None = None, digest: str | None = None) -> Entry:
        """Return a ledger entry for a fact about the call."""
        return Entry(
            self.slot, self.attempt, fact, self.tool, self.replay_class, self.key, self.input_hash, external_id, digest
        )

    def reconciled(
        self,
        verdict: str,
        *,
        by: str,
        n: int = 0,
        payload: Any = None,
        external_id: str | None = None,
        digest: str | None = None,
    ) -> tuple[ToolReconciled, Entry]:
        """Return the event and the ledger entry of a settled outcome.

        `n` is the number of the question to a person that it answers.
        """
        event = ToolReconciled(
            slot=self.slot, attempt=self.attempt, tool=self.tool, verdict=verdict, by=by, n=n, payload=payload
        )
        return event, self.entry("reconciled", external_id=external_id, digest=digest)


CALLED_BACK = "called back"  # text for a late callback; late results of workers are `happened`, `accepted` or `refused`
# Recorded outcomes according to which nothing happened, or that leave it open.
_NOT_DONE = frozenset({"did_not", "fail", "refused"})


@dataclass(slots=True)
class Finding:
    """The recorded outcome of an attempt, and what contradicts it.

    This is checked before another attempt is made, and shown on pages.
    """

    on_record: str = ""  # a verdict (happened, did_not, fail), `refused`, or `answered` by the other side
    contradicted: str = ""  # the recorded outcome that a late result contradicts, until a person settles it again
    is_contradicted: bool = False  # a late result says that it happened, and no person has settled it since

    def found(self, outcome: str) -> None:
        """Record the outcome. A refusal or the verdict *fail the run* does not settle a contradiction."""
        self.on_record = outcome
        if outcome not in ("fail", "refused"):
            self.contradicted, self.is_contradicted = "", False
        elif outcome == "refused" and self.is_contradicted:
            self.contradicted = outcome

    def contradicted_by(self, text: str) -> str:
        """Return the recorded outcome that a late result contradicts; empty if none."""
        is_contradicted = self.on_record == "happened" if text == "refused" else self.on_record in _NOT_DONE
        return self.on_record if is_contradicted else ""

    def hear(self, text: str) -> str:
        """Take a late result into account. Return the recorded outcome that it contradicts; empty if none."""
        self.is_contradicted |= text != "refused" and self.on_record not in ("happened", "answered")
        self.contradicted = self.contradicted_by(text) or self.contradicted
        return self.contradicted_by(text)


@dataclass(frozen=True, slots=True)
class GateOpening:
    """The question of a gate. It is committed together with its wait of kind `approval`."""

    approval_id: UUID
    queue: str
    tool: str
    title: str
    effect: str
    rule: str
    plan: bytes
    plan_hash: str
    evidence: list[dict[str, Any]]
    why: str
    requested_by: str
    case: UUID | None = None  # the first stage's question, if the approval has stages or counts votes
    # The terms other than the deadline (see gating/timing.py), and when to check the approval before the deadline.
    timing: dict[str, Any] | None = None
    look_at: datetime | None = None
    # The plan's documents, and by digest the contents, which may not be stored yet.
    documents: list[dict[str, Any]] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grant:
    """A person's approval of an exact plan. Passing it to a call uses it up. `slot` and `approval_id` name the
    question, `plan_hash` and `requested_hash` are digests of what was approved and what was requested, `by` is the
    person who decided, and `queue` the queue (with several stages, that of the first). `stages` lists the required
    approvals, each (queue, quorum), if more than one person was needed."""

    slot: str
    approval_id: str
    plan_hash: str
    requested_hash: str
    by: str
    queue: str
    stages: tuple[tuple[str, int], ...] = ()

    @property
    def queues(self) -> set[str]:
        """The queues whose people approved, over all stages."""
        return {self.queue, *(queue for queue, _ in self.stages)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint, made when no call is in progress. `state` is plain JSON data."""

    node: str
    visit: int
    generation: int
    fingerprint: str
    state: Any


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child run, created in the commit of the step that starts it.

    `depth` counts its ancestors; `time` limits its duration.
    """

    run_id: str
    agent: str
    version: str
    input: Any
    tags: tuple[str, ...]
    caps: Caps
    time: timedelta | None
    parent: str
    slot: str
    attempt: int
    depth: int
    trace_id: str
    attributes: AttributesSet | None = None


@dataclass(frozen=True, slots=True)
class Successor:
    """The continuation of an `origin`, created in the commit that ends that run.

    `events` are its first events. `signals` are the origin's signals without a recipient that it takes over:
    (number of the event in the origin, number by name in this run, number of the event in this run); `all_signals` are
    the numbers of all of them. `left` is the rest of the origin's budget, and `caps` is the continuation's own
    budget.
    """

    run_id: str
    origin: str
    agent: str
    version: str
    input: Any
    events: tuple[Event, ...]
    signals: tuple[tuple[int, int, int], ...]
    all_signals: tuple[int, ...]
    left: Caps
    caps: Caps
    carried_on: RunCarriedOn


# A function that turns the events of `Journal.inherited` into a journal's last events and the run that continues it.
MakeSuccessor = Callable[[Sequence[tuple[int, Event]]], tuple[list[Event], Successor]]


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of one commit, which is written completely or not at all.

    With `is_intent` (TX1) it announces a call and uses up `grant` (slot, plan hash). Such a commit is refused on a stop
    request, if the call is answered, or if an earlier attempt may have happened. Without `is_intent` (TX2) it records
    what happened, even during a stop.
    """

    events: Sequence[Event]
    entries: Sequence[Entry] = ()
    wait: WaitSpec | None = None
    gate: GateOpening | None = None
    usage: Usage = NOTHING_USED
    snapshot: Snapshot | None = None
    grant: tuple[str, str] | None = None
    is_intent: bool = False
    child: ChildSpec | None = None


@dataclass(frozen=True, slots=True)
class History:
    """A run as its claimant sees it, from its newest readable checkpoint on.

    `counts_reads`: reads need an intent. `skipped` lists newer checkpoints that can't be used, each with the number of
    its event and the reason.
    """

    snapshot: Snapshot | None
    tail: Sequence[Event]
    created: Event
    reply: Reply
    caps: Caps = UNLIMITED
    used: Usage = NOTHING_USED
    depth: int = 0
    counts_reads: bool = False
    forked: RunForked | None = None
    skipped: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class Effects:
    """A run's events about effects, in order.

    `reversible` are the completed children, and the run that this one continues, if they have effects of their own to
    undo. `at_work` are unfinished children, which will be cancelled with the run and may still have effects.
    """

    events: Sequence[Event] = ()
    reversible: frozenset[str] = frozenset()
    at_work: frozenset[str] = frozenset()


class Journal(Protocol):
    """The journal of one run, under one lease.

    Every method is one commit; only one may run at a time. Methods raise StaleLease once the lease is lost. `load`
    raises JournalBroken if the stored data can't be trusted.
    """

    @property
    def run_id(self) -> str:
        """The run's public id."""
        ...

    @property
    def lease(self) -> Lease:
        """The claimant's right to write to the journal."""
        ...

    @property
    def seq(self) -> int:
        """The number of the last event that this claimant has seen."""
        ...

    def now(self) -> datetime:
        """The database's time, estimated from the last reply and a monotonic clock."""
        ...

    async def load(self) -> History: ...

    async def commit(self, batch: Batch) -> Reply:
        """Write a step. This is the only way to write an intent.

        Raises ApprovalMissing if an intent's grant isn't available, BudgetShort if the run's budget doesn't cover an
        intent, SharedBudgetShort and SharedBudgetUnpriced if a shared budget doesn't, NotAsked if a question's queue is
        closed, PoliciesChanged if an intent was judged by outdated policies.
        """
        ...

    async def may_repeat(self, slot: str, attempt: int, key: str = "", *, judged: int | None = None) -> Reply:
        """Return whether an announced call may be sent again.

        It may not after a stop request, once it is answered, or while `key` (such as tool:charge) is halted. Raises
        PoliciesChanged unless `judged` is the current revision of the policies.
        """
        ...

    async def set_aside(self, events: Sequence[Event], key: str = "") -> Reply:
        """Release a run because of a halt. The run keeps its state and continues later.

        After a stop request, this is refused.
        """
        ...

    async def signal(self, name: str, n: int) -> SignalReceived | SignalCarried:
        """Return the `n`-th signal with this name ever sent to the run. Raises JournalBroken if there is none."""
        ...

    async def asked(self, slot: str) -> Sequence[Event]:
        """Return the events of a question and the intents that use its approval, in order. Raises JournalBroken."""
        ...

    async def models(self) -> Sequence[ModelsChosen]:
        """Return every recorded choice of models, in order. Raises JournalBroken."""

    async def inbox(self) -> MessageReceived | None:
        """Return the oldest unanswered message. Raises JournalBroken if its event can't be trusted."""
        ...

    async def answer(self, n: int, outcome: str, events: Sequence[Event], *, waits: Sequence[UUID] = ()) -> Reply:
        """Record the outcome of the oldest message, the `n`-th, and resolve `waits` with it.

        Nothing is written if one of them was resolved meanwhile.
        """
        ...

    async def leave(
        self, how: How, events: Sequence[Event], *, state: str, waits: Sequence[UUID] = (), error: str = ""
    ) -> Reply:
        """Release the run, unless its state has changed: see runs/sql/steps.sql and runs/sql/messages.sql."""
        ...

    async def origin(self) -> RunCarriedOn | None:
        """Return the event that names the run which this one continues; None if there is none. Raises JournalBroken."""
        ...

    async def taken_over(self) -> Sequence[AnswerTakenOver]:
        """Return the answers that this run's calls took over from another run. Raises JournalBroken."""
        ...

    async def undone(self, places: Collection[tuple[str, str, int]]) -> Collection[tuple[str, str, int]]:
        """Return the given effects of other runs (run, slot, attempt) that were, will be or may have been undone."""
        ...

    async def inherited(self) -> Sequence[tuple[int, Event]]:
        """Return the events from which a continuation is built, with their numbers. Raises JournalBroken."""
        ...

    async def effects(self) -> Effects:
        """Return the run's effects, for undoing them. Raises JournalBroken."""
        ...

    async def succeed(self, make: MakeSuccessor) -> Reply:
        """End the run and create its continuation in one commit. Raises JournalBroken.

        This is refused after a stop request, if the rest of the budget has changed, or while a wait, a child or (in a
        renewal) a message is open.
        """
        ...
