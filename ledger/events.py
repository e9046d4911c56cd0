"""The closed vocabulary of what can happen to a run. Pure: no Django, no I/O.

Every event is frozen and past tense. Its dataclass fields are the *clear* metadata: small, ASCII keys, no floats, stored as
exact bytes and covered by the hash chain. `payload` (tool arguments, results, messages, tracebacks) is stored apart as *sealed*
bytes, so that it can be compressed, and later encrypted or erased, without touching the chain.

`FACT` names what an event says about its slot. The database holds `(run, slot, attempt, fact)` unique, so a second intent,
a second result or a second decision for one logical call can't be written at all. A kind that may repeat within a slot numbers
its fact through `n`.

A shipped shape never changes; a new shape is a new kind.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import zstandard

RAW, ZSTD = b"\x00", b"\x01"
_COMPRESS_FROM = 256
MAX_PAYLOAD = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all kinds. `slot` is the identity of a logical call, or None for what concerns the run as a whole."""

    KIND: ClassVar[str] = ""
    FACT: ClassVar[str | None] = None

    slot: str | None = None
    attempt: int = 0
    payload: Any = None

    @property
    def fact(self) -> str | None:
        """What this event says about its slot; with the wait's kind and a number where a slot may have several."""
        parts = (self.FACT, getattr(self, "wait", None), getattr(self, "n", None))
        return None if self.FACT is None else ".".join(str(p) for p in parts if p is not None)

    def clear(self) -> dict[str, Any]:
        """The metadata that is stored in the clear, without the columns the row has anyway."""
        return {name: getattr(self, name) for name in _names_of(type(self))}


_COLUMNS = frozenset({"slot", "attempt", "payload"})


_clear_names: dict[type[Event], tuple[str, ...]] = {}


def _names_of(cls: type[Event]) -> tuple[str, ...]:
    """The fields that are metadata. Looked up for every event, so found out once a class."""
    found = _clear_names.get(cls)
    if found is None:
        found = _clear_names[cls] = tuple(f.name for f in fields(cls) if f.name not in _COLUMNS)
    return found


KINDS: dict[str, type[Event]] = {}


def kind(cls: type[Event]) -> type[Event]:
    """Enter a class into the vocabulary under its own name."""
    cls.KIND = cls.__name__
    KINDS[cls.__name__] = cls
    return cls


# --- the run as a whole -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunCreated(Event):
    """A run was accepted. Payload: the validated input."""

    agent: str
    version: str
    by: str


@dataclass(frozen=True, kw_only=True)
class RunClaimed(Event):
    """A worker took the run under a new epoch. `cause`: start, resolved, resumed, retried, released, recovered."""

    epoch: int
    worker: str
    host: str
    pid: int
    cause: str


@dataclass(frozen=True, kw_only=True)
class VisitEntered(Event):
    """The run came to a node: the consistent cut at which a checkpoint is enough to go on."""

    node: str
    visit: int


@dataclass(frozen=True, kw_only=True)
class RunParked(Event):
    """Every branch waits; the worker let go. `waits` are the slots waited for."""

    state: str
    waits: list[str]


@dataclass(frozen=True, kw_only=True)
class RunReleased(Event):
    """A draining worker handed the run back at a step boundary."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class WorkerLost(Event):
    """The run was taken from the worker that drove it. `is_counted`: proven dead, in a step with nothing written since its claim.

    `cause`: proof, suspicion, host_gone, operator; `proof` says the same in words. `reached`: how far the run had come: claimed,
    intent_durable, result_durable, visit_entered, wait_opened; `call` is the slot of a call in doubt. `silent_ms`: from the
    worker's last sign of life to this event.
    """

    worker: str
    epoch: int
    pid: int
    proof: str
    is_counted: bool
    deaths: int
    cause: str = "proof"
    host: str = ""
    reached: str = ""
    call: str | None = None
    silent_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class PauseRequested(Event):
    """A person asked for a pause; the owner stops at the next step boundary. Payload: the justification."""

    by: str


@dataclass(frozen=True, kw_only=True)
class RunPaused(Event):
    """The run stands still until it is resumed."""

    by: str


@dataclass(frozen=True, kw_only=True)
class RunResumed(Event):
    """A person let a paused run go on. Payload: the justification."""

    by: str
    state: str


@dataclass(frozen=True, kw_only=True)
class CancelRequested(Event):
    """A person asked to end the run; nothing more is dispatched from here on. Payload: the justification."""

    by: str


@dataclass(frozen=True, kw_only=True)
class RunCancelled(Event):
    """The run ended by a person's act. `in_flight` discloses calls whose answer was still outstanding."""

    by: str
    in_flight: list[str]


@dataclass(frozen=True, kw_only=True)
class RunFailed(Event):
    """The run ended in an error. Payload: message and traceback."""

    code: str


@dataclass(frozen=True, kw_only=True)
class RunCompleted(Event):
    """The run ended well. Payload: the output."""


@dataclass(frozen=True, kw_only=True)
class RunRetried(Event):
    """A person let a failed run re-enter its visit. `reopened`: slots that get a further attempt. Payload: the justification."""

    by: str
    reopened: list[str]


@dataclass(frozen=True, kw_only=True)
class OperatorNeeded(Event):
    """The engine stopped rather than guess. Payload: what was found, with both sides where two disagree."""

    reason: str


# --- model requests -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ModelRequested(Event):
    """A model request is about to leave. Payload: the messages this turn adds that no other event holds."""

    FACT: ClassVar[str | None] = "intent"
    conversation: str
    turn: int
    model: str
    request_hash: str


@dataclass(frozen=True, kw_only=True)
class ModelResponded(Event):
    """The model's turn, never asked again. Payload: the response message."""

    FACT: ClassVar[str | None] = "result"
    conversation: str
    turn: int
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, kw_only=True)
class ModelFailed(Event):
    """The provider refused the request for good. Payload: message and traceback."""

    FACT: ClassVar[str | None] = "result"
    conversation: str
    turn: int
    code: str


# --- tool calls ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ToolInvoked(Event):
    """The durable intent of a call that has effects: committed before the first byte leaves.

    Payload: arguments, idempotency key and, for a tool that answers later, the callback token: all that a repeat needs to
    send the same bytes. `grant` is the slot of the approval that this intent consumed.
    """

    FACT: ClassVar[str | None] = "intent"
    tool: str
    replay_class: str
    requested_hash: str
    executed_hash: str
    grant: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToolRead(Event):
    """A pure call with its answer: no intent was needed. Payload: arguments and result."""

    FACT: ClassVar[str | None] = "result"
    tool: str
    requested_hash: str


@dataclass(frozen=True, kw_only=True)
class ToolAccepted(Event):
    """Upstream took the call and will answer by callback. Payload: what it said."""

    FACT: ClassVar[str | None] = "accepted"
    tool: str


@dataclass(frozen=True, kw_only=True)
class ToolReturned(Event):
    """The call's result. Payload: the result."""

    FACT: ClassVar[str | None] = "result"
    tool: str
    external_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToolFailed(Event):
    """A definite failure: upstream refused, or a pure call can't succeed. Payload: message, details, traceback."""

    FACT: ClassVar[str | None] = "result"
    tool: str
    code: str
    requested_hash: str


@dataclass(frozen=True, kw_only=True)
class CallbackReceived(Event):
    """Upstream answered a call that it had accepted. Payload: the body as received."""

    FACT: ClassVar[str | None] = "result"
    tool: str


@dataclass(frozen=True, kw_only=True)
class CallbackArrivedLate(Event):
    """An answer came after its deadline had been acted on: on record, without effect on the run. Payload: the body."""

    FACT: ClassVar[str | None] = "late"
    tool: str


@dataclass(frozen=True, kw_only=True)
class ToolAnsweredLate(Event):
    """A worker that has lost the run tells how its call came out, and it changes nothing: the outcome was settled already, or somebody
    else is getting it. `outcome`: happened, refused, accepted. `contradicts` is the verdict it belies: did_not, fail; or empty. Payload: the answer.
    """

    FACT: ClassVar[str | None] = "answered_late"
    tool: str
    by: str
    outcome: str
    contradicts: str
    n: int = 0


@dataclass(frozen=True, kw_only=True)
class ToolNotDispatched(Event):
    """Proof that no byte of the call left; it may be sent again under the same attempt. Payload: the error."""

    FACT: ClassVar[str | None] = "not_sent"
    tool: str
    n: int


@dataclass(frozen=True, kw_only=True)
class ToolRedispatched(Event):
    """A call may go out again, at most `tries` times under this claim: from here on its outcome is in doubt once more."""

    FACT: ClassVar[str | None] = "resent"
    tool: str
    n: int
    tries: int = 1


@dataclass(frozen=True, kw_only=True)
class ToolOutcomeUnknown(Event):
    """The call may or may not have happened and must not be repeated unasked. Payload: why it is unknown.

    `is_sender_done` says that the sender itself reported this, so no byte of the old attempt can still leave.
    """

    FACT: ClassVar[str | None] = "unknown"
    tool: str
    is_sender_done: bool


@dataclass(frozen=True, kw_only=True)
class ToolReconciled(Event):
    """An unknown outcome was settled. `verdict`: happened, did_not, fail. Payload: receipt and justification."""

    FACT: ClassVar[str | None] = "reconciled"
    tool: str
    verdict: str
    by: str
    n: int = 0


# --- reads, waits and gates ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ValueRead(Event):
    """A value from outside the node that a replay must see again. Payload: the value."""

    FACT: ClassVar[str | None] = "result"
    what: str


@dataclass(frozen=True, kw_only=True)
class BranchesOpened(Event):
    """The node went on in so many branches at once; their calls are numbered below this slot."""

    FACT: ClassVar[str | None] = "branches"
    branches: int


@dataclass(frozen=True, kw_only=True)
class WaitOpened(Event):
    """The run asked for something and can't go on without it. Payload: details for people, if any."""

    FACT: ClassVar[str | None] = "wait_opened"
    wait: str
    deadline: str
    n: int


@dataclass(frozen=True, kw_only=True)
class SignalReceived(Event):
    """Somebody sent the run its `n`-th signal of a name; it is kept until the node takes it. Payload: what was sent."""

    name: str
    n: int
    by: str


@dataclass(frozen=True, kw_only=True)
class SignalTaken(Event):
    """A call of the node got the `n`-th signal of a name. What was sent is in the event that tells of its coming."""

    FACT: ClassVar[str | None] = "result"
    name: str
    n: int

    @property
    def fact(self) -> str | None:
        """One result for one call, whichever signal it is."""
        return self.FACT


@dataclass(frozen=True, kw_only=True)
class InputAnswered(Event):
    """A person answered what the node asked. Payload: the answer and the justification, if there is one."""

    FACT: ClassVar[str | None] = "answer"
    by: str
    role: str
    n: int


@dataclass(frozen=True, kw_only=True)
class WaitResolved(Event):
    """What was waited for came, or its time ran out. First one wins, for ever."""

    FACT: ClassVar[str | None] = "wait_resolved"
    wait: str
    resolution: str
    by: str
    n: int


@dataclass(frozen=True, kw_only=True)
class ApprovalRequested(Event):
    """A gate opened and froze the plan. Payload: the plan, exactly as it is hashed."""

    FACT: ClassVar[str | None] = "gate"
    approval_id: str
    queue: str
    tool: str
    requested_hash: str
    plan_hash: str
    rule: str
    deadline: str
    n: int = 0


@dataclass(frozen=True, kw_only=True)
class ApprovalDecided(Event):
    """A person decided, or the deadline did (which denies). Payload: the justification."""

    FACT: ClassVar[str | None] = "decision"
    approval_id: str
    verdict: str
    plan_hash: str
    by: str
    role: str
    n: int = 0


for _cls in Event.__subclasses__():
    kind(_cls)


# --- bytes --------------------------------------------------------------------------------------------------------------


# Made once: an encoder or a compressor made for each event costs more than its work.
_CLEAR = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)
_PAYLOAD = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class _Zstd(threading.local):
    """A thread's own: neither may be used by two threads at once."""

    def __init__(self) -> None:
        self.pack, self.unpack = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()


_zstd = _Zstd()


def encode_clear(event: Event) -> bytes:
    """Sorted compact ASCII JSON: any text survives it, and with no floats it has one form only.

    Kind, slot and attempt are inside, so the row's columns are derived from hashed bytes and can be checked against them.
    """
    whole = {"kind": event.KIND, "slot": event.slot, "attempt": event.attempt, **event.clear()}
    return _CLEAR.encode(whole).encode()


def seal(payload: Any) -> bytes | None:
    """Payload bytes as stored: one codec byte, then JSON, compressed where that pays. None stays None."""
    if payload is None:
        return None
    # Half a surrogate pair is no text: it is replaced here rather than refused, for what failed must always be recordable.
    raw = _PAYLOAD.encode(payload).encode("utf-8", "replace")
    if len(raw) > MAX_PAYLOAD:
        raise ValueError(
            f"a payload of {len(raw)} bytes is too large for a journal: keep it elsewhere and record where"
        )
    if len(raw) < _COMPRESS_FROM:
        return RAW + raw
    packed = _zstd.pack.compress(raw)
    return ZSTD + packed if len(packed) < len(raw) else RAW + raw


def unseal(sealed: bytes | memoryview | None) -> Any:
    """The inverse of `seal`. Raises ValueError on bytes that `seal` can't have made."""
    if sealed is None:
        return None
    data = bytes(sealed)
    codec, body = data[:1], data[1:]
    if codec == ZSTD:
        try:
            if zstandard.frame_content_size(body) > MAX_PAYLOAD:
                raise ValueError("sealed payload is too large to be one")
            body = _zstd.unpack.decompress(body, max_output_size=MAX_PAYLOAD)
        except zstandard.ZstdError as error:
            raise ValueError(f"sealed payload does not decompress: {error}") from error
    elif codec != RAW:
        raise ValueError(f"sealed payload has unknown codec {codec!r}")
    return json.loads(body)


def columns(clear: bytes | memoryview) -> tuple[str, str | None, int, str | None]:
    """What a row's columns kind, slot, attempt and fact must say: they are not hashed themselves but derive from what is."""
    event = decode(clear)
    return event.KIND, event.slot, event.attempt, event.fact


def decode(clear: bytes | memoryview, payload: Any = None) -> Event:
    """An event from its stored parts. Raises KeyError for a kind that this version of the vocabulary lacks, ValueError for no event."""
    whole = json.loads(bytes(clear))
    if not isinstance(whole, dict):
        raise ValueError("the clear bytes are no object")
    return KINDS[whole.pop("kind")](payload=payload, **whole)
