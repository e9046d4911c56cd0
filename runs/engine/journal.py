"""The port between the engine and wherever a run's journal is kept. Two versions pass one conformance suite: in memory, PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol
from uuid import NAMESPACE_URL, UUID, uuid5

from ledger.events import Event, SignalReceived

_A_DAY = timedelta(days=1)
How = Literal["park", "settle", "pause", "release", "end"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the journal answers to every write. `is_done` False: nothing was written, and the flags say why; where none does, the
    call that the write was about has been answered meanwhile, or what was waited for has come."""

    seq: int
    at: datetime
    is_pause_requested: bool = False
    is_cancel_requested: bool = False
    is_on_hold: bool = False
    is_done: bool = True

    @property
    def stop(self) -> Literal["cancel", "hold", "pause"] | None:
        """What people asked for, the stronger wish first."""
        if self.is_cancel_requested:
            return "cancel"
        if self.is_on_hold:
            return "hold"
        return "pause" if self.is_pause_requested else None


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact about one side effect, for the ledger."""

    slot: str
    attempt: int
    fact: str
    tool: str
    replay_class: str
    key: str | None = None
    input_hash: str | None = None
    external_id: str | None = None
    digest: str | None = None


def deadline_in(now: datetime, within: timedelta) -> datetime:
    """A time from now. Raises ValueError for one that no calendar here holds."""
    try:
        return in_range(now + within)
    except OverflowError:
        raise ValueError(f"{within} from now is beyond the year 9999: wait for less") from None


def in_range(deadline: datetime) -> datetime:
    """The deadline in UTC. Raises ValueError where that is not within the years 1 to 9999: a database would store it, and no Python
    could read it back, nor any list that it is in. A day is kept free at both ends, for servers that answer in a time zone of their own."""
    try:
        found = deadline.astimezone(UTC)
        if datetime.min.replace(tzinfo=UTC) + _A_DAY <= found <= datetime.max.replace(tzinfo=UTC) - _A_DAY:
            return found
    except OverflowError:
        pass
    raise ValueError(f"{deadline.isoformat()} is not within the years 1 to 9999 in UTC: give an earlier deadline")


@dataclass(frozen=True, slots=True)
class WaitSpec:
    """One thing to wait for. `detail` is small and clear: what people are told about it. Raises ValueError for a deadline that can't be
    read back."""

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


@dataclass(frozen=True, slots=True)
class Grant:
    """A person's yes to an exact plan. Passing it to a call uses it up."""

    slot: str
    approval_id: str
    plan_hash: str
    requested_hash: str
    by: str
    queue: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What a step adds to the run's counters."""

    steps: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tool_calls: int = 0
    model_calls: int = 0


NOTHING_USED = Usage()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint at a consistent cut: plain data, no call in flight. `state` is JSON-able."""

    node: str
    visit: int
    generation: int
    fingerprint: str
    state: Any


@dataclass(frozen=True, slots=True)
class History:
    """All that a claimant needs: the newest sound checkpoint, the events after it, and the run's first event."""

    snapshot: Snapshot | None
    tail: Sequence[Event]
    created: Event
    reply: Reply


class Journal(Protocol):
    """One run's journal under one lease. Every method is one commit; each raises StaleLease once the lease is lost. Several may be
    asked for at once; they are made one after the other.

    `intend` (TX1) additionally raises ApprovalMissing. `load` raises JournalBroken when what is stored can't be trusted.
    """

    @property
    def run_id(self) -> str:
        """The run's id, as people and the outside see it."""
        ...

    @property
    def seq(self) -> int:
        """The journal's last event, as far as this claimant knows."""
        ...

    def now(self) -> datetime:
        """The database's clock: of the last reply, moved on by a monotonic clock since."""
        ...

    async def load(self) -> History: ...

    async def intend(
        self,
        events: Sequence[Event],
        *,
        entry: Entry | None = None,
        grant: tuple[str, str] | None = None,
        wait: WaitSpec | None = None,
    ) -> Reply:
        """Make an intent durable before the call leaves. `grant` is (slot, plan hash) of the approval it consumes."""
        ...

    async def record(
        self,
        events: Sequence[Event],
        *,
        entries: Sequence[Entry] = (),
        wait: WaitSpec | None = None,
        gate: GateOpening | None = None,
        usage: Usage = NOTHING_USED,
        snapshot: Snapshot | None = None,
    ) -> Reply:
        """Make facts durable."""
        ...

    async def may_repeat(self, slot: str, attempt: int) -> Reply:
        """Whether a call that the journal announced already may go out once more: not done where people asked for a stop, or where
        its answer is on record. Writes nothing."""
        ...

    async def signal(self, name: str, n: int) -> SignalReceived:
        """The `n`-th signal of a name that was sent to the run, whenever that was. Raises JournalBroken if there is none."""
        ...

    async def leave(
        self, how: How, events: Sequence[Event], *, state: str, waits: Sequence[UUID] = (), error: str = ""
    ) -> Reply:
        """Let go of the run. Not done (and said so) where it would be wrong by now: see runs/sql/steps.sql."""
        ...
