"""The closed vocabulary of what can happen to a run. Pure: no Django, no I/O.

Every event is frozen and past tense. Its fields are the *clear* metadata: small, ASCII keys, no floats, stored as exact
bytes and covered by the hash chain. Its `payload` (arguments, results, messages, tracebacks) is stored apart as
*packed* bytes, which can be compressed, and later encrypted or erased, without touching the chain.

`fact` names what a kind says about its slot. The database holds `(run, slot, attempt, fact)` unique, so a second
intent, result or decision for one logical call can't be written at all. A kind that may repeat within a slot numbers
its fact by `n`. A shipped shape never changes; a new shape is a new kind.
"""

from __future__ import annotations

from ledger.codec import KINDS as KINDS
from ledger.codec import Event as Event
from ledger.codec import decode as decode
from ledger.codec import encode_clear as encode_clear
from ledger.codec import unpack
from ledger.kinds import *  # noqa: F403 - each room of kinds is part of the one vocabulary

unseal = unpack  # by this name a shipped migration (runs 0013) imports it

# --- the run as a whole -----------------------------------------------------------------------------------------------


class RunCreated(Event):
    """A run was accepted. Payload: the validated input."""

    agent: str
    version: str
    by: str


class RunClaimed(Event):
    """A worker took the run: a new epoch. `cause`: start, resolved, resumed, retried, released, recovered, migrated."""

    epoch: int
    worker: str
    host: str
    pid: int
    cause: str


class VisitEntered(Event):
    """The run came to a node: the consistent cut at which a checkpoint is enough to go on."""

    node: str
    visit: int


class RunParked(Event):
    """Every branch waits; the worker let go. `waits` are the slots waited for."""

    state: str
    waits: list[str]


class RunReleased(Event):
    """A draining worker handed the run back at a step boundary."""

    reason: str


class PauseRequested(Event):
    """A person asked for a pause; the owner stops at the next step boundary. Payload: the justification."""

    by: str


class RunPaused(Event):
    """The run stands still until it is resumed."""

    by: str


class RunResumed(Event):
    """A person let a paused run go on. Payload: the justification."""

    by: str
    state: str


class CancelRequested(Event):
    """A person asked to end the run; nothing more is dispatched from here on. Payload: the justification."""

    by: str


class RunCancelled(Event):
    """The run ended by a person's act. `in_flight` discloses calls whose answer was still outstanding."""

    by: str
    in_flight: list[str]


class RunFailed(Event):
    """The run ended in an error. Payload: message and traceback."""

    code: str


class RunCompleted(Event):
    """The run ended well. Payload: the output."""


class RunRetried(Event):
    """A person let a failed run re-enter its visit; slots in `reopened` are tried anew. Payload: the justification, and
    from when to when the run had ended (`over`)."""

    by: str
    reopened: list[str]


class OperatorNeeded(Event):
    """The engine stopped rather than guess. Payload: what was found, with both sides where two disagree."""

    reason: str


# --- model requests ---------------------------------------------------------------------------------------------------


class ModelRequested(Event, fact="intent"):
    """A model request is about to leave. Payload: the messages this turn adds that no other event holds."""

    conversation: str
    turn: int
    model: str
    request_hash: str


class ModelResponded(Event, fact="result"):
    """The model's turn, never asked again. Payload: the response message."""

    conversation: str
    turn: int
    tokens_in: int
    tokens_out: int


class ModelFailed(Event, fact="result"):
    """The provider refused the request for good, or no request was made: content was withheld, or the loop gave up.
    Payload: message and traceback."""

    conversation: str
    turn: int
    code: str


# --- child runs -------------------------------------------------------------------------------------------------------


class ChildStarted(Event, fact="child"):
    """A run of another agent was started as a step of this one, in the same commit. `caps` is what it may use, which is
    set aside here. Payload: its input."""

    child: str
    agent: str
    requested_hash: str
    caps: dict[str, int]


class ChildOf(Event):
    """The run was started by a step of another one, `depth` runs below one that wasn't."""

    parent: str
    parent_slot: str
    parent_attempt: int
    depth: int


class ChildEnded(Event, fact="result"):
    """A child came to its end, and what it and its own children used is debited here. `state`: completed, failed,
    cancelled. Payload: its output, or its error."""

    child: str
    agent: str
    state: str
    code: str
    steps: int
    tool_calls: int
    model_calls: int
    tokens_in: int
    tokens_out: int
    usd_micro: int
    unpriced_calls: int


# --- tool calls -------------------------------------------------------------------------------------------------------


class ToolInvoked(Event, fact="intent"):
    """The durable intent of a call that has effects: committed before the first byte leaves. Payload: arguments, key,
    and the callback token of a tool that answers later: all that a repeat needs to send the same bytes. `grant` is the
    slot of the approval that this intent consumed."""

    tool: str
    replay_class: str
    requested_hash: str
    executed_hash: str
    grant: str | None = None


class ToolRead(Event, fact="result"):
    """A pure call with its answer: no intent was needed. Payload: arguments and result."""

    tool: str
    requested_hash: str


class ToolAccepted(Event, fact="accepted"):
    """Upstream took the call and will answer by callback. Payload: what it said."""

    tool: str


class ToolReturned(Event, fact="result"):
    """The call's result. Payload: the result."""

    tool: str
    external_id: str | None = None


class ToolFailed(Event, fact="result"):
    """A definite failure: upstream refused, or a pure call can't succeed. Payload: message, details, traceback."""

    tool: str
    code: str
    requested_hash: str


class CallbackReceived(Event, fact="result"):
    """Upstream answered a call that it had accepted. Payload: the body as received."""

    tool: str


class CallbackArrivedLate(Event, fact="late"):
    """An answer came when its call was over: its deadline had been acted on, or somebody had said what became of it. It
    is no result any more; where it belies what is on record, a further attempt waits for a person. Payload: the
    body."""

    tool: str


class ToolAnsweredLate(Event, fact="answered_late"):
    """A worker that has lost the run, or whose answer another one overtook, tells how its call came out, when that was
    settled already, or somebody else is getting it. It is no result; where it belies what is on record, a further
    attempt waits for a person. `outcome`: happened, refused, accepted.
    `contradicts` is what of the record it belies: a verdict (happened, did_not, fail), refused, or nothing. Payload:
    the answer."""

    tool: str
    by: str
    outcome: str
    contradicts: str
    n: int = 0


class ToolNotDispatched(Event, fact="not_sent"):
    """Proof that no byte of the call left; it may be sent again under the same attempt. Payload: the error."""

    tool: str
    n: int


class ToolRedispatched(Event, fact="resent"):
    """A call may go out again, at most `tries` times under this claim: from here on its outcome is in doubt again."""

    tool: str
    n: int
    tries: int = 1


class ToolOutcomeUnknown(Event, fact="unknown"):
    """The call may or may not have happened and must not be repeated unasked. Payload: why it is unknown.
    `is_sender_done`: the sender itself reported this, so no byte of the old attempt can still leave."""

    tool: str
    is_sender_done: bool


class ToolReconciled(Event, fact="reconciled"):
    """An unknown outcome was settled. `verdict`: happened, did_not, fail. Payload: receipt and justification."""

    tool: str
    verdict: str
    by: str
    n: int = 0


# --- reads, waits and gates -------------------------------------------------------------------------------------------


class ValueRead(Event, fact="result"):
    """A value from outside the node that a replay must see again. Payload: the value."""

    what: str


class BranchesOpened(Event, fact="branches"):
    """The node went on in so many branches at once; their calls are numbered below this slot."""

    branches: int


class WaitOpened(Event, fact="wait_opened"):
    """The run asked for something and can't go on without it. Payload: details for people, if any."""

    wait: str
    deadline: str
    n: int


class SignalReceived(Event):
    """Somebody sent the run its `n`-th signal of a name; it is kept until the node takes it. Payload: what was sent."""

    name: str
    n: int
    by: str


class SignalTaken(Event, fact="result"):
    """A call of the node got the `n`-th signal of a name. What was sent is in the event that tells of its coming."""

    name: str
    n: int

    @property
    def fact(self) -> str | None:
        """One result for one call, whichever signal it is."""
        return self.FACT


class InputAnswered(Event, fact="answer"):
    """A person answered what the node asked. Payload: the answer and the justification, if there is one."""

    by: str
    role: str
    n: int


class WaitResolved(Event, fact="wait_resolved"):
    """What was waited for came, or its time ran out. First one wins, for ever."""

    wait: str
    resolution: str
    by: str
    n: int


class ApprovalRequested(Event, fact="gate"):
    """A gate opened and froze the plan. Payload: the plan, exactly as it is hashed."""

    approval_id: str
    queue: str
    tool: str
    requested_hash: str
    plan_hash: str
    rule: str
    deadline: str
    n: int = 0


class ApprovalDecided(Event, fact="decision"):
    """A person decided, or the deadline did (which denies). Payload: the justification."""

    approval_id: str
    verdict: str
    plan_hash: str
    by: str
    role: str
    n: int = 0
