"""The port between the engine and wherever a run's journal is kept. Two versions pass one conformance suite: in memory,
PostgreSQL."""

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
ATTENTION = timedelta(days=7)  # how long a person has to settle what only people can, before it counts as overdue
How = Literal["park", "settle", "pause", "budget", "release", "end"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the journal answers to every write. `is_done` False: nothing was written, and the flags say why; where none
    does, the call that the write was about has been answered meanwhile, or what was waited for has come; or a halt
    keeps it from going out (`is_halted`)."""

    seq: int
    at: datetime
    is_pause_requested: bool = False
    is_cancel_requested: bool = False
    is_on_hold: bool = False
    is_done: bool = True
    is_halted: bool = False

    @property
    def stop(self) -> Literal["cancel", "hold", "pause"] | None:
        """What people asked for, the stronger wish first."""
        if self.is_cancel_requested:
            return "cancel"
        if self.is_on_hold:
            return "hold"
        return "pause" if self.is_pause_requested else None


def deadline_in(now: datetime, within: timedelta) -> datetime:
    """A time from now. Raises ValueError for one that no calendar here holds."""
    try:
        return in_range(now + within)
    except OverflowError:
        raise ValueError(f"{within} from now is beyond the year 9999: wait for less") from None


def in_range(deadline: datetime) -> datetime:
    """The deadline in UTC. Raises ValueError where that is not within the years 1 to 9999: a database would store it,
    and no Python could read it back, nor any list that it is in. A day is kept free at both ends, for servers that
    answer in a time zone of their own."""
    try:
        in_utc = deadline.astimezone(UTC)
        if datetime.min.replace(tzinfo=UTC) + _A_DAY <= in_utc <= datetime.max.replace(tzinfo=UTC) - _A_DAY:
            return in_utc
    except OverflowError:
        pass
    raise ValueError(f"{deadline.isoformat()} is not within the years 1 to 9999 in UTC: give an earlier deadline")


@dataclass(frozen=True, slots=True)
class WaitSpec:
    """One thing to wait for. `detail` is small and clear: what people are told about it. Raises ValueError for a
    deadline that can't be read back."""

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
        """A function of what is waited for, so that a replay names the same wait."""
        return uuid5(NAMESPACE_URL, f"{self.run_id}|{self.slot}|{self.attempt}|{self.kind}|{self.n}")

    def opened(self, payload: Any = None) -> WaitOpened:
        """The event that tells of it."""
        return WaitOpened(
            slot=self.slot,
            attempt=self.attempt,
            wait=self.kind,
            n=self.n,
            deadline=self.deadline.isoformat(),
            payload=payload,
        )


def detail_of(opened: WaitOpened) -> dict[str, Any]:
    """What a question's row has to say, as its event tells it; of other waits nothing."""
    told = opened.payload if opened.wait == "input" and isinstance(opened.payload, dict) else {}
    return {name: value for name, value in told.items() if name not in ("call", "hash", "error")}


@dataclass(frozen=True, slots=True)
class Intent:
    """An attempt at a tool call, as all facts about it name it."""

    slot: str
    attempt: int
    tool: str
    replay_class: str
    key: str | None
    input_hash: str

    @classmethod
    def of(cls, event: ToolInvoked) -> Self:
        """The intent that is on record."""
        key = event.payload.get("key") if isinstance(event.payload, dict) else None
        assert event.slot is not None
        return cls(event.slot, event.attempt, event.tool, event.replay_class, key, event.requested_hash)

    def entry(self, fact: str, *, external_id: str | None = None, digest: str | None = None) -> Entry:
        """A fact about the call, for the ledger."""
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
        """What became of the call, by whoever found out. `n` numbers the question to a person that it answers."""
        event = ToolReconciled(
            slot=self.slot, attempt=self.attempt, tool=self.tool, verdict=verdict, by=by, n=n, payload=payload
        )
        return event, self.entry("reconciled", external_id=external_id, digest=digest)


CALLED_BACK = "called back"  # what a late callback tells, beside a worker's happened, accepted and refused
# What may be on record of an attempt and says that nothing came of it, or leaves it open.
_NOT_DONE = frozenset({"did_not", "fail", "refused"})


@dataclass(slots=True)
class Finding:
    """What is on record of an attempt, and what witnesses tell against it: the engine asks before a further one is
    begun, the pages before they say it aloud."""

    on_record: str = ""  # a verdict (happened, did_not, fail), `refused`, or `answered` by the other side
    belied: str = ""  # what of it a witness belies; until a person has said anew what became of the attempt
    is_belied: bool = False  # a witness told that it was done, and no person has said since what became of it

    def found(self, outcome: str) -> None:
        """Put on record what became of it. A refusal isn't a word on what a witness told, nor is *fail the run*."""
        self.on_record = outcome
        if outcome not in ("fail", "refused"):
            self.belied, self.is_belied = "", False
        elif outcome == "refused" and self.is_belied:
            self.belied = outcome

    def belied_by(self, told: str) -> str:
        """What is on record that a witness's word belies; empty if nothing is."""
        is_belied = self.on_record == "happened" if told == "refused" else self.on_record in _NOT_DONE
        return self.on_record if is_belied else ""

    def hear(self, told: str) -> str:
        """A witness tells when it is over; what of the record that belies."""
        self.is_belied |= told != "refused" and self.on_record not in ("happened", "answered")
        self.belied = self.belied_by(told) or self.belied
        return self.belied_by(told)


@dataclass(frozen=True, slots=True)
class GateOpening:
    """What people are asked to decide: rides with the wait of kind `approval`."""

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
    case: UUID | None = None  # the first stage's question, where there are several or where votes are counted
    # What holds of its time beside the deadline (see gate/timing.py), and when somebody looks at it before that.
    timing: dict[str, Any] | None = None
    look_at: datetime | None = None
    # What the plan names of documents; and by digest the bytes that may not be stored yet.
    documents: list[dict[str, Any]] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grant:
    """A person's yes to an exact plan. Passing it to a call uses it up.

    `slot` and `approval_id` name the question, `plan_hash` and `requested_hash` are digests of what was approved and of
    what was asked, `by` is who decided, for which `queue`: of several stages the first one's. `stages` says who had to
    say yes in all, each (queue, quorum), where that was more than one person.
    """

    slot: str
    approval_id: str
    plan_hash: str
    requested_hash: str
    by: str
    queue: str
    stages: tuple[tuple[str, int], ...] = ()

    @property
    def queues(self) -> set[str]:
        """Whoever said yes: at the first stage and at each further one."""
        return {self.queue, *(queue for queue, _ in self.stages)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint at a consistent cut: plain data, no call in flight. `state` is JSON-able."""

    node: str
    visit: int
    generation: int
    fingerprint: str
    state: Any


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A run that is made with the step that starts it. `depth` counts the runs above it; `time` is how long it may
    take."""

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
class Heir:
    """The run that an `origin` goes on as, made with its end. `events` are its journal's first; `signals` those of the
    origin's that it has (their numbers there, and here the one among those of its name and the event's), of
    `all_signals` that no call took; `left` what is left of the origin's budget, and `caps` what it may use."""

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


# What a run's journal ends with and the run that it goes on as, made of what `Journal.estate` gives.
MakeHeir = Callable[[Sequence[tuple[int, Event]]], tuple[list[Event], Heir]]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit makes durable, whole or not at all.

    With `is_intent` (TX1) it announces what is about to leave: it is refused where people asked for a stop, where its
    call has been answered, or where an attempt before it may have happened after all, and `grant`, the (slot, plan
    hash) of an approval, is used up by it. Without (TX2) it tells what has happened, which a stop doesn't keep from
    being recorded.
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
    """All that a claimant needs: the newest sound checkpoint, the events after it, the run's first event, what it may
    use and what it has used, how many runs are above it, whether a pool counts its reads too, which then need an
    intent, and what tells of a fork whose fork it is."""

    snapshot: Snapshot | None
    tail: Sequence[Event]
    created: Event
    reply: Reply
    caps: Caps = UNLIMITED
    used: Usage = NOTHING_USED
    depth: int = 0
    counts_reads: bool = False
    forked: RunForked | None = None


@dataclass(frozen=True, slots=True)
class Effects:
    """What a run's whole journal tells of its effects, in order; and which runs hold effects of their own to undo:
    children that ended well, and the run that this one goes on from. `at_work` are the children that are cancelled with
    it and may have effects until then."""

    events: Sequence[Event] = ()
    reversible: frozenset[str] = frozenset()
    at_work: frozenset[str] = frozenset()


class Journal(Protocol):
    """One run's journal under one lease. Every method is one commit; each raises StaleLease once the lease is lost.
    Several may be asked for at once; they are made one after the other.

    `load` raises JournalBroken when what is stored can't be trusted.
    """

    @property
    def run_id(self) -> str:
        """The run's id, as people and the outside see it."""
        ...

    @property
    def lease(self) -> Lease:
        """The claimant's right to write."""
        ...

    @property
    def seq(self) -> int:
        """The journal's last event, as far as this claimant knows."""
        ...

    def now(self) -> datetime:
        """The database's clock: of the last reply, moved on by a monotonic clock since."""
        ...

    async def load(self) -> History: ...

    async def commit(self, batch: Batch) -> Reply:
        """Make a step durable: the only write of one. Raises ApprovalMissing where the grant of an intent is not to be
        had, BudgetShort where the run may not use what an intent wants, PoolShort and PoolUnpriced where a pool that it
        shares can't give it, NotAsked where a question is put to a queue that takes none any more, PoliciesChanged
        where an intent was judged by others than are in force."""
        ...

    async def may_repeat(self, slot: str, attempt: int, key: str = "", *, judged: int | None = None) -> Reply:
        """Whether a call that the journal announced already may go out once more: not done where people asked for a
        stop, where its answer is on record, or where what it calls (`key`, such as tool:charge) is halted. Writes
        nothing. Raises PoliciesChanged where it was `judged` by the policies of another revision than that in
        force."""
        ...

    async def set_aside(self, events: Sequence[Event], key: str = "") -> Reply:
        """Let go of a run that a halt keeps from going on: its state stays, and it wants driving when it is lifted.
        Not done where people asked for a stop."""
        ...

    async def signal(self, name: str, n: int) -> SignalReceived | SignalCarried:
        """The `n`-th signal of a name that was sent to the run, whenever that was. Raises JournalBroken if there is
        none."""
        ...

    async def asked(self, slot: str) -> Sequence[Event]:
        """All that is on record at the slot of a question, however long ago, and the intents that name its yes, in
        order. Raises JournalBroken."""
        ...

    async def models(self) -> Sequence[ModelsChosen]:
        """Which models the run asks: every choice on record, in order. Raises JournalBroken."""

    async def inbox(self) -> MessageReceived | None:
        """The oldest message that was neither handled nor told that the run had ended. Raises JournalBroken where its
        event can't be trusted."""
        ...

    async def answer(self, n: int, outcome: str, events: Sequence[Event], *, waits: Sequence[UUID] = ()) -> Reply:
        """Put on record what became of the run's oldest message, its `n`-th, and that `waits` have ended with it. Not
        done where one of them has ended meanwhile."""
        ...

    async def leave(
        self, how: How, events: Sequence[Event], *, state: str, waits: Sequence[UUID] = (), error: str = ""
    ) -> Reply:
        """Let go of the run. Not done (and said so) where it would be wrong by now: see runs/sql/steps.sql, and,
        for a message that wants an answer before the run parks, runs/sql/messages.sql."""
        ...

    async def origin(self) -> RunCarriedOn | None:
        """What tells where the run goes on from; None for one that nobody went before. Raises JournalBroken."""
        ...

    async def taken_over(self) -> Sequence[AnswerTakenOver]:
        """What the run's calls were given of what another run did. Raises JournalBroken."""
        ...

    async def undone(self, places: Collection[tuple[str, str, int]]) -> Collection[tuple[str, str, int]]:
        """Which of these effects of other runs (run, slot, attempt) were undone, are about to be, or may have been for
        all that anybody can read."""
        ...

    async def estate(self) -> Sequence[tuple[int, Event]]:
        """What an heir of the run is made of, with the events' numbers: what its first events tell, what it is found
        by, which models it asks, and the signals that no call took. Raises JournalBroken."""
        ...

    async def effects(self) -> Effects:
        """What of the run could be undone. Raises JournalBroken."""
        ...

    async def succeed(self, make: MakeHeir) -> Reply:
        """End the run and make the one that it goes on as, in one commit, of what is on record while nothing else can
        be written. Not done where people asked for a stop, where what is left of the budget has changed, and where a
        wait, a child or (in a renewal) a message is open. Raises JournalBroken."""
        ...
