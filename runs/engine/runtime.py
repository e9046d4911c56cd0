"""Services that the engine receives from outside, and the control of a run that is being driven."""

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
from runs.engine.gating.timing import QueueTiming
from runs.engine.guards import Guard
from runs.engine.halts import Halts
from runs.engine.limits import Limits
from runs.engine.outcomes import LateAnswer, StopReason
from runs.engine.policy import NoPolicies, Policies
from runs.engine.secrets import NoSecrets, SecretStore
from runs.engine.threads import ToolThreads

log = logging.getLogger("durableagents.engine")

Overhearing = AbstractAsyncContextManager[Callable[[str], None] | None]
_STRONGEST_FIRST: tuple[StopReason, ...] = ("cancel", "hold", "pause", "halt", "drain")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retry delays in seconds, with jitter.

    Delays in place double from `first` to `longest`, for `in_place` seconds. Then the run parks for `timer_first`
    seconds, doubling up to `timer_longest`, and retries in place for `in_place_later` seconds after each timer. An
    outage that lasts hours therefore adds only a few events an hour, and its end is noticed after at most 5 minutes or
    the outage's own duration, whichever is shorter. A `Retry-After` is honoured up to `asked_longest`.
    """

    first: float = 0.1
    longest: float = 2.0
    in_place: float = 12.0
    in_place_later: float = 2.0
    timer_first: float = 5.0
    timer_longest: float = 300.0
    asked_longest: float = 3600.0

    def delay(self, tries: int, *, retry_after: float | None = None) -> float:
        """Return the delay before the next try in place.

        The delay is at least as long as the upstream system asked for.
        """
        own = min(self.longest, self.first * 2.0 ** min(tries - 1, 20)) * (0.5 + random.random() / 2)
        return own if retry_after is None else own + self._capped(retry_after)

    def is_over(self, seconds: float, round_: int) -> bool:
        """Return whether a round (numbered from 0) that has lasted this long should end with a timer."""
        return seconds > (self.in_place if round_ == 0 else min(self.in_place, self.in_place_later))

    def timer(self, round_: int, *, retry_after: float | None = None) -> float:
        """Return the duration of the durable timer after this round (numbered from 0)."""
        own = min(self.timer_longest, self.timer_first * 2.0 ** min(round_, 20))
        return max(own, self._capped(retry_after or 0.0)) * (1.0 + random.random() / 4)

    def _capped(self, seconds: float) -> float:
        return min(max(seconds, 0.0), self.asked_longest)


async def _not_known(graph_id: str, fingerprint: str) -> None:
    return None


@dataclass(frozen=True)
class Runtime:
    """Services that the engine receives from outside.

    `call_secret` is the key from which idempotency keys and callback tokens are derived; it stays the same for a run's
    whole life. `hit` is called at each named crash point, with the point and the tool. `is_fenced` tells whether this
    process lost its registration as a worker and must send nothing until it has it back. `record_late` takes results
    that the engine may no longer record, and `keep` takes a node's progress messages (see steps/telling.py).

    `models` returns the models for an assistant's first request in a run, and `route` a model with its price. An
    unavailable model is tried last for `model_rest` seconds, until the time in `resting`. `budget_queue` is the queue
    that is asked to raise a budget, in addition to operators. `price_patience` is the number of seconds to wait for a
    missing price. `overhear` returns a function for live model output, if there are subscribers.

    `guards` are the features' guards in order, `screens` the installation's content hooks, `reads` is the cache
    of reads. `queues` are the existing queues, `people` the queues and roles that may be asked (None: any);
    `queue_timing` has rules about time if queues have no settings of their own. `policies` are evaluated for each tool
    call. `limits` gives shared permits, each awaited in place for up to `limit_patience` seconds. `halts` tells which
    calls must not be sent. `certificates` tells which keyed tools were seen to honour keys.

    With `refuses_other_code`, a run whose checkpoint was written by other code waits for an operator. `code_of` returns
    the parts of such code by agent and fingerprint, if known. `secrets` reads the values of the secrets that tools use.
    With `shows_documents`, an app stores the documents of gates and shows them.
    """

    hasher: Hasher
    call_secret: bytes = field(repr=False)
    request_model: Callable[..., Coroutine[Any, Any, ModelTurn]]
    callback_url: Callable[[str], str]
    guards: Sequence[Guard]
    hit: Callable[[str, str], None] = lambda point, tool: None
    threads: ToolThreads = field(default_factory=ToolThreads)
    is_fenced: Callable[[], bool] = lambda: False
    record_late: Callable[[LateAnswer], None] = lambda late: None
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
    queue_timing: QueueTiming | None = None
    shows_documents: bool = True
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
    secrets: SecretStore = field(default_factory=NoSecrets)


@dataclass(frozen=True, slots=True)
class Sent:
    """A call in progress: its key (such as tool:charge), its start (monotonic clock), and its timeout in seconds."""

    slot: str
    key: str
    since: float
    timeout: float


class Control:
    """Stops a driven run at its next step boundary. It may be used from one event loop only."""

    def __init__(self) -> None:
        self._reasons: set[StopReason] = set()
        self.stop: StopReason | None = None  # the strongest request, checked after each step
        # Unsafe calls now in progress. Cutting off such a call would leave its outcome unknown, so a drain waits for
        # it.
        self.unsafe_calls = 0
        self.in_flight: dict[str, Sent] = {}  # by slot
        self.stop_asked = asyncio.Event()
        self.cancelled = asyncio.Event()

    def ask(self, reason: StopReason) -> None:
        """Request a stop."""
        self._reasons.add(reason)
        self._rank()
        self.stop_asked.set()
        if reason == "cancel":
            self.cancelled.set()

    def _rank(self) -> None:
        self.stop = next((reason for reason in _STRONGEST_FIRST if reason in self._reasons), None)

    @contextmanager
    def unsafe_call(self) -> Iterator[None]:
        """Count an unsafe call from before it is sent until its outcome is recorded."""
        self.unsafe_calls += 1
        try:
            yield
        finally:
            self.unsafe_calls -= 1

    @contextmanager
    def sending(self, slot: str, key: str, timeout: float) -> Iterator[None]:
        """Register a call while it is in progress in the upstream system, so that a halt can report it."""
        self.in_flight[slot] = Sent(slot, key, time.monotonic(), timeout)
        try:
            yield
        finally:
            self.in_flight.pop(slot, None)

    def take_back(self, reason: StopReason) -> None:
        """Withdraw a request that is obsolete or has been handled. Other requests remain."""
        self._reasons.discard(reason)
        self._rank()
        if reason == "cancel":
            self.cancelled.clear()
        if not self._reasons:
            self.stop_asked.clear()


async def without_exit(calling: Awaitable[Any]) -> Any:
    """Turn a `sys.exit()` in a tool or hook into an error. Otherwise it would end the worker and every run in it."""
    try:
        return await calling
    except SystemExit as error:
        raise RuntimeError(f"it tried to end the worker process with exit code {error.code}") from error


def is_being_cancelled() -> bool:
    """Return whether the current task is being cancelled. If not, a CancelledError was raised by a tool."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
