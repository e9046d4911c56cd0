"""The kinds of events in a run's journal, a closed set. Pure: no Django, no I/O."""

# Every event is frozen and named in the past tense. Its fields are the *clear* (unencrypted) metadata: small, ASCII
# keys, no floats, stored as exact bytes and covered by the hash chain. Its `payload` (arguments, results, messages,
# tracebacks) is stored apart as *packed* bytes, which can be compressed, and later encrypted or erased, without
# touching the chain.
#
# `fact` names what a kind states about its slot. `(run, slot, attempt, fact)` is unique in the database, so a logical
# call can't have a second intent, result or decision. A kind that may repeat within a slot numbers its fact with `n`.
# The shape of a released kind never changes; a new shape needs a new kind.

from __future__ import annotations

from ledger.codec import KINDS as KINDS
from ledger.codec import Event as Event
from ledger.codec import decode as decode
from ledger.codec import encode_clear as encode_clear
from ledger.codec import unpack
from ledger.kinds import *  # noqa: F403 - each room of kinds is part of the one vocabulary

unseal = unpack  # a released migration (runs 0013) imports it under this name

# --- the run as a whole -----------------------------------------------------------------------------------------------


class RunCreated(Event):
    """A run was accepted. Payload: the validated input."""

    agent: str
    version: str
    by: str
    protocol: int = 1  # see ledger/protocol.py; missing in old events, from before it was recorded


class RunClaimed(Event):
    """A worker took the run: a new epoch. `cause`: start, resolved, resumed, retried, released, recovered, migrated."""

    epoch: int
    worker: str
    host: str
    pid: int
    cause: str


class VisitEntered(Event):
    """The run entered a node: a consistent cut from which the run can continue."""

    node: str
    visit: int


class CheckpointSkipped(Event):
    """A worker could not use the checkpoint at event `at`, and continued from the one before. Payload: the reason."""

    at: int


class RunParked(Event):
    """Every branch waits, so the worker released the run. `waits` are the slots of the waits."""

    state: str
    waits: list[str]


# Prefix of the reason for a release, followed by what the worker lacked.
KEY_MISSING = "key missing: "


class RunReleased(Event):
    """A worker handed the run back, because the worker is draining, the run is halted, or the worker lacks the run's
    encryption key."""

    reason: str


class PauseRequested(Event):
    """A person asked for a pause; the owner stops at the next step boundary. Payload: the justification."""

    by: str


class RunPaused(Event):
    """The run is paused until it is resumed."""

    by: str


class RunResumed(Event):
    """A person resumed a paused run. Payload: the justification."""

    by: str
    state: str


class CancelRequested(Event):
    """A person asked to cancel the run; from here on nothing more is dispatched. Payload: the justification."""

    by: str


class RunCancelled(Event):
    """The run was cancelled by a person. `in_flight` lists calls that had not been answered yet."""

    by: str
    in_flight: list[str]


class RunFailed(Event):
    """The run ended in an error. Payload: message and traceback."""

    code: str


class RunCompleted(Event):
    """The run completed. Payload: the output."""


class RunRetried(Event):
    """A person retried a failed run: it re-enters its visit, and the slots in `reopened` are tried again. Payload: the
    justification, and the period during which the run had ended (`over`)."""

    by: str
    reopened: list[str]


class OperatorNeeded(Event):
    """The engine stopped and needs a person's decision. Payload: what was found, with both sides of a contradiction."""

    reason: str


# --- model requests ---------------------------------------------------------------------------------------------------


class ModelRequested(Event, fact="intent"):
    """A model request is about to be sent. Payload: the messages that this turn adds and no other event contains."""

    conversation: str
    turn: int
    model: str
    request_hash: str


class ModelResponded(Event, fact="result"):
    """The model's response; the request is never sent again. Payload: the response message."""

    conversation: str
    turn: int
    tokens_in: int
    tokens_out: int


class ModelFailed(Event, fact="result"):
    """The provider refused the request definitively, or none was sent, because content was withheld or the loop gave
    up. Payload: message and traceback."""

    conversation: str
    turn: int
    code: str


# --- child runs -------------------------------------------------------------------------------------------------------


class ChildStarted(Event, fact="child"):
    """A run of another agent was started as a step of this one, in the same commit. `caps` is the budget set aside for
    it. Payload: its input."""

    child: str
    agent: str
    requested_hash: str
    caps: dict[str, int]


class ChildOf(Event):
    """The run was started by a step of another one, `depth` levels below the root run."""

    parent: str
    parent_slot: str
    parent_attempt: int
    depth: int


class ChildEnded(Event, fact="result"):
    """A child run ended; its usage, including that of its own children, is debited here. `state`: completed, failed,
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
    """The durable intent of a call that has effects, committed before the first byte is sent. `grant` is the slot of
    the approval that this intent consumed. Payload: arguments, key, and the callback token of a tool that answers
    later: all that a repeat needs to send the same bytes."""

    tool: str
    replay_class: str
    requested_hash: str
    executed_hash: str
    grant: str | None = None


class ToolRead(Event, fact="result"):
    """A pure call with its answer; pure calls need no intent. Payload: arguments and result."""

    tool: str
    requested_hash: str


class ToolAccepted(Event, fact="accepted"):
    """The upstream system accepted the call and will answer by callback. Payload: its response."""

    tool: str


class ToolReturned(Event, fact="result"):
    """The call's result. Payload: the result."""

    tool: str
    external_id: str | None = None


class ToolFailed(Event, fact="result"):
    """A definite failure: the upstream system refused, or a pure call can't succeed.

    Payload: message, details, traceback.
    """

    tool: str
    code: str
    requested_hash: str


class CallbackReceived(Event, fact="result"):
    """The upstream system answered a call that it had accepted. Payload: the body as received."""

    tool: str


class CallbackArrivedLate(Event, fact="late"):
    """A callback arrived after its call was over: its deadline had passed, or a person had settled it. It is not a
    result; if it contradicts the record, a further attempt waits for a person. Payload: the body."""

    tool: str


class ToolAnsweredLate(Event, fact="answered_late"):
    """A worker that lost the run, or was overtaken, reported a call's outcome after the call had been settled or the
    run taken over. It is not a result; if it contradicts the record, a further attempt waits for a person. `outcome`:
    happened, refused, accepted. `contradicts` is the part of the record that it contradicts: a verdict (happened,
    did_not, fail), refused, or nothing. Payload: the answer."""

    tool: str
    by: str
    outcome: str
    contradicts: str
    n: int = 0


class ToolNotDispatched(Event, fact="not_sent"):
    """Proof that no byte of the call was sent, so it may be sent again under the same attempt. Payload: the error."""

    tool: str
    n: int


class ToolRedispatched(Event, fact="resent"):
    """A call may be sent again, at most `tries` times under this claim: from here on, its outcome is unknown again."""

    tool: str
    n: int
    tries: int = 1


class ToolOutcomeUnknown(Event, fact="unknown"):
    """The call may have happened or not, and must not be repeated without asking a person. `is_sender_done`: the
    claim that recorded this has no attempt in progress; an earlier, lost claim may have. Payload: why it is unknown."""

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
    """A value from outside the node, recorded so that a replay reads the same value. Payload: the value."""

    what: str


class BranchesOpened(Event, fact="branches"):
    """The node opened this many concurrent branches; their calls are numbered below this slot."""

    branches: int


class WaitOpened(Event, fact="wait_opened"):
    """The run waits for something. Payload: details for people, if any."""

    wait: str
    deadline: str
    n: int


class SignalReceived(Event):
    """The run received its `n`-th signal of a name, kept until the node takes it. Payload: the signal's content."""

    name: str
    n: int
    by: str


class SignalTaken(Event, fact="result"):
    """A call of the node took the `n`-th signal of a name. The content is in its SignalReceived event."""

    name: str
    n: int

    @property
    def fact(self) -> str | None:
        """Return the same fact for every signal, because a call takes only one."""
        return self.FACT


class InputAnswered(Event, fact="answer"):
    """A person answered the node's question. Payload: the answer and the justification, if any."""

    by: str
    role: str
    n: int


class WaitResolved(Event, fact="wait_resolved"):
    """A wait was satisfied or timed out. The first resolution is final."""

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
    """A person decided, or the deadline passed (which denies). Payload: the justification."""

    approval_id: str
    verdict: str
    plan_hash: str
    by: str
    role: str
    n: int = 0
