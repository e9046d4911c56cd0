"""What the shell lends the engine, and its hand on a run that is being driven."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from ledger.actors import Lease
from runs.engine.assistants import SCRIPTED, Assistant, ModelTurn
from runs.engine.budget import Route
from runs.engine.canonical import Hasher
from runs.engine.certification import Certificates
from runs.engine.content.hooks import Screen
from runs.engine.content.reads import NoReads, Reads
from runs.engine.halts import Halts
from runs.engine.limits import Limits
from runs.engine.outcomes import LateAnswer, StopReason
from runs.engine.policy import NoPolicies, Policies
from runs.engine.threads import ToolThreads

log = logging.getLogger("durableagents.engine")

Overhearing = AbstractAsyncContextManager[Callable[[str], None] | None]
_STRONGEST_FIRST: tuple[StopReason, ...] = ("cancel", "hold", "pause", "halt", "drain")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds throughout. In place the delay doubles from `first` to `longest` until `in_place` is used up; afterwards
    the run parks for `timer_first`, doubling to `timer_longest`, and each later round tries in place for
    `in_place_later` only: so an outage of hours leaves a handful of events an hour, and its end is noticed within about
    as long as it lasted, 5 minutes at most.

    What the other side asks for (`Retry-After`) is kept to, up to `asked_longest`. Everything is jittered, so that many
    runs that were stopped by one outage don't come back at once."""

    first: float = 0.1
    longest: float = 2.0
    in_place: float = 12.0
    in_place_later: float = 2.0
    timer_first: float = 5.0
    timer_longest: float = 300.0
    asked_longest: float = 3600.0

    def delay(self, tries: int, *, retry_after: float | None = None) -> float:
        """Before try number `tries` + 1, in place; never less than what the other side asked for."""
        own = min(self.longest, self.first * 2.0 ** min(tries - 1, 20)) * (0.5 + random.random() / 2)
        return own if retry_after is None else own + self._capped(retry_after)

    def is_over(self, seconds: float, round_: int) -> bool:
        """Whether a round (from 0) that would then have lasted so long gives way to a timer."""
        return seconds > (self.in_place if round_ == 0 else min(self.in_place, self.in_place_later))

    def timer(self, round_: int, *, retry_after: float | None = None) -> float:
        """How long the durable timer of this round (from 0) runs."""
        own = min(self.timer_longest, self.timer_first * 2.0 ** min(round_, 20))
        return max(own, self._capped(retry_after or 0.0)) * (1.0 + random.random() / 4)

    def _capped(self, seconds: float) -> float:
        return min(max(seconds, 0.0), self.asked_longest)


async def _not_known(graph_id: str, fingerprint: str) -> None:
    return None


@dataclass(frozen=True)
class Runtime:
    """What the shell lends the engine. `hit` is called at each named crash point with the point and the tool;
    `is_fenced` says that this process has lost its place among the workers, and must send nothing until it has it
    back. `hand_in` takes an answer that this process may no longer record, `keep` what a node says for people (see
    steps/telling.py). `models` are those that an assistant's
    requests go to now, in a run that hasn't asked any yet; `route` says what one of them costs; a model that didn't
    serve is asked after the others for `model_rest` seconds, until the time in `resting`; `budget_queue` is the queue
    that is asked to raise a budget, beside the operators; `price_patience` how many seconds a missing price is waited
    for. `overhear` gives what takes the text of a request under way, where somebody listens. `screens` are the
    installation's hooks that look at content, `reads` the cache of reads. `queues` are those that somebody decides,
    `people` the queues and roles that may be asked; None: any. `policies` are asked about each tool call. `limits`
    gives the permits of what all workers share, each waited for in place for `limit_patience` seconds; `halts` say what
    must not leave. `certificates` say which keyed tools were seen to honour keys. With `refuses_other_code` a run waits
    for an operator whose checkpoint other code wrote; `code_of` is what such code was made of, by agent and
    fingerprint, if it is known."""

    hasher: Hasher
    request_model: Callable[..., Coroutine[Any, Any, ModelTurn]]
    callback_url: Callable[[str], str]
    hit: Callable[[str, str], None] = lambda point, tool: None
    threads: ToolThreads = field(default_factory=ToolThreads)
    is_fenced: Callable[[], bool] = lambda: False
    hand_in: Callable[[LateAnswer], None] = lambda late: None
    keep: Callable[[str, Lease, Any], None] = lambda run_id, lease, told: None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    models: Callable[[Assistant], Sequence[str]] = lambda assistant: [f"{SCRIPTED}{assistant.name}"]
    route: Callable[[str], Route] = Route
    resting: dict[str, float] = field(default_factory=dict)
    model_rest: float = 30.0
    budget_queue: str = ""
    price_patience: float = 8.0
    overhear: Callable[[str, Lease, str, int], Overhearing] = lambda run_id, lease, slot, attempt: nullcontext(None)
    queues: Collection[str] | None = None
    screens: Sequence[Screen] = ()
    reads: Reads = field(default_factory=NoReads)
    people: Collection[str] | None = None
    policies: Policies = field(default_factory=NoPolicies)
    limits: Limits = field(default_factory=Limits)
    limit_patience: float = 2.0
    halts: Halts = field(default_factory=Halts)
    certificates: Certificates = field(default_factory=Certificates)
    refuses_other_code: bool = False
    code_of: Callable[[str, str], Awaitable[Mapping[str, Any] | None]] = _not_known


@dataclass(frozen=True, slots=True)
class Sent:
    """A call in flight: what it is of (tool:charge), since when by the monotonic clock, and for how many seconds at
    most."""

    slot: str
    key: str
    since: float
    timeout: float


class Control:
    """The shell's hand on a run that is being driven: ask it to stop at the next step boundary. One event loop only."""

    def __init__(self) -> None:
        self._reasons: set[StopReason] = set()
        # In flight now. What is cut there is in doubt for good, so a drain lets it come to its own end.
        self.unsafe_calls = 0
        self.in_flight: dict[str, Sent] = {}  # by slot
        self.stop_asked = asyncio.Event()
        self.cancelled = asyncio.Event()

    @property
    def stop(self) -> StopReason | None:
        if not self._reasons:  # asked at each boundary, and nearly always so
            return None
        return next((r for r in _STRONGEST_FIRST if r in self._reasons), None)

    def ask(self, reason: StopReason) -> None:
        """Ask for a stop."""
        self._reasons.add(reason)
        self.stop_asked.set()
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

    @contextmanager
    def sending(self, slot: str, key: str, timeout: float) -> Iterator[None]:
        """While a call is with the other side: whoever halts it is told of it."""
        self.in_flight[slot] = Sent(slot, key, time.monotonic(), timeout)
        try:
            yield
        finally:
            self.in_flight.pop(slot, None)

    def take_back(self, reason: StopReason) -> None:
        """Nobody wants it any more, or it has been seen to; other wishes stand."""
        self._reasons.discard(reason)
        if reason == "cancel":
            self.cancelled.clear()
        if not self._reasons:
            self.stop_asked.clear()


def is_being_cancelled() -> bool:
    """Whether somebody wants the current task to end. A CancelledError without that is a stray one, of a tool's own
    making."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
