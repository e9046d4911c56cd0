"""Replays a recorded visit with the current code, sending nothing, and reports the first difference."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn
from uuid import UUID

from pydantic import BaseModel, ValidationError

from ledger import events as e
from ledger.actors import Lease
from runs.engine.agents import Agent
from runs.engine.amending import asked_for
from runs.engine.assistants import DIGESTS, Assistant, ModelTurn
from runs.engine.budget import UNLIMITED, Meter, Usage
from runs.engine.canonical import Hasher, keyed_hasher
from runs.engine.continuation import HandedOver, Renewed
from runs.engine.errors import JournalBroken
from runs.engine.journal import Batch, Reply, Snapshot, WaitSpec
from runs.engine.logical_call import ARGUMENTS
from runs.engine.memory import MemoryJournal, MemoryRun
from runs.engine.messages import Changes, between, entered, handled_in
from runs.engine.outcomes import Broken, Crashed, Unwind, describe_call, differs
from runs.engine.recordings.recording import Recording
from runs.engine.replay import Advanced, Finished, Outcome, run_visit
from runs.engine.runtime import Control, Runtime
from runs.engine.screening import recorded_replacements
from runs.engine.steps.forks import FORK_FENCE
from runs.engine.tape import Slot, Tape, payload_of
from runs.engine.tools import FOR_DISPATCH, Tool
from runs.engine.undo import UNDO_NODE
from runs.engine.undoing.plan import Plan
from runs.engine.undoing.visit import Undone, undo_visit
from runs.engine.visit import QuestionRecord, Visit

MAX_TEXT = 400


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference at `slot`: the record contains `recorded`, but the code does what `asked` describes.

    `slot` is empty if the difference concerns the whole visit.
    """

    slot: str
    recorded: str
    asked: str
    note: str = ""

    def __str__(self) -> str:
        where = f"at {self.slot} " if self.slot else ""
        note = f" ({self.note})" if self.note else ""
        return f"{where}the record says: {self.recorded}; the code: {self.asked}{note}"


def call_in_words(what: str, arguments: Any = None) -> str:
    """Return a call as text."""
    if arguments is None:
        return what
    return f"{what}({format_value(arguments)})"


def format_value(value: Any) -> str:
    """Return a value as text on one line, truncated if it is long."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def first_misfit(recorded: Any, found: Any, placeholders: Sequence[str] = (), path: str = "") -> str | None:
    """Describe the first difference; None if there is none.

    A recorded text with redacted parts (one of `placeholders`) matches any text.
    """
    where = path or "value"
    if isinstance(recorded, dict) and isinstance(found, dict):
        for name in sorted({*recorded, *found}):
            if name not in found or name not in recorded:
                return f"{where}.{name} is only in {'the record' if name in recorded else 'the code'}"
            misfit = first_misfit(recorded[name], found[name], placeholders, f"{path}.{name}" if path else str(name))
            if misfit is not None:
                return misfit
        return None
    if isinstance(recorded, list) and isinstance(found, list):
        if len(recorded) != len(found):
            return f"{where} has {len(recorded)} in the record, but {len(found)} from the code"
        pairs = enumerate(zip(recorded, found, strict=True))
        misfits = (first_misfit(a, b, placeholders, f"{path}[{i}]") for i, (a, b) in pairs)
        return next((misfit for misfit in misfits if misfit is not None), None)
    if (
        isinstance(recorded, str)
        and isinstance(found, str)
        and any(each == recorded or (len(each) > 3 and each in recorded) for each in placeholders)
    ):
        return None
    if type(recorded) is not type(found) or recorded != found:
        return f"{where} is {format_value(recorded)} in the record, but {format_value(found)} from the code"
    return None


def place_key(slot: str) -> tuple[tuple[int, ...], ...]:
    """Return a sort key that puts slots in the order of their places."""
    return tuple(tuple(int(n) for n in part.split(".")) for part in slot.split("/")) if slot[:1].isdigit() else ()


class Remembering:
    """A hasher that remembers what it hashed."""

    def __init__(self, hasher: Hasher) -> None:
        self._hasher = hasher
        self._known: dict[str, Any] = {}

    def __call__(self, value: Any) -> str:
        digest = self._hasher(value)
        self._known[digest] = value
        return digest

    def of(self, digest: str) -> dict[str, Any]:
        """Return the mapping from which a digest was made; empty if unknown."""
        value = self._known.get(digest)
        return value if isinstance(value, dict) else {}


def rehashed(events: Sequence[e.Event], hasher: Hasher) -> list[e.Event]:
    """Return a visit's events with their digests recomputed by this hasher, if the hashed data is recorded."""
    plans: dict[str, str] = {}
    fields: dict[str, str] = {}
    return [_reset(event, hasher, plans, fields) for event in events]


def _reset(event: e.Event, hasher: Hasher, plans: dict[str, str], first: dict[str, str]) -> e.Event:
    """Recompute the digests of one event.

    `plans` maps old to new plan hashes. `first` maps each slot to its first requested hash, which stays the same if
    people amend the arguments.
    """
    payload = payload_of(event)
    match event:
        case e.ApprovalRequested():
            plans[event.plan_hash] = hasher(payload)
            digest = hasher({"tool": event.tool, "arguments": payload.get("arguments")})
            digest = first.setdefault(event.slot or "", digest)
            return replace(event, plan_hash=plans[event.plan_hash], requested_hash=digest)
        case e.ApprovalDecided() | e.ApprovalVoted():
            return replace(event, plan_hash=plans.get(event.plan_hash, event.plan_hash))
        case e.PlanAmended():
            return replace(event, plan_hash=plans.get(event.plan_hash, event.plan_hash))
        case e.ToolInvoked() if event.executed_hash != event.requested_hash and event.slot in first:
            return replace(event, requested_hash=first[event.slot])
        case e.ToolInvoked() | e.ToolRead() | e.ToolFailed() if "arguments" in payload:
            return replace(event, requested_hash=hasher({"tool": event.tool, "arguments": payload["arguments"]}))
        case _:
            return event


HASHER = keyed_hasher(b"durableagents replays")
NOTHING = "nothing"
_NOT_AWAITED = frozenset({"now", "random", "uuid", "budget"})


@dataclass
class Replayed:
    """The result of a replay.

    `answered` are the calls answered from the record, `beyond` the calls after its end, and `states` are the node's
    plain states by the number of the call.
    """

    answered: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)
    difference: Difference | None = None
    states: dict[int, Any] = field(default_factory=dict)
    last: Any = None


async def replay(recording: Recording, agent: Agent, *, hasher: Hasher | None = None) -> Replayed:
    """Replay the visit with the current code.

    With the `hasher` of the record, digests are compared too.
    """
    found = Replayed()
    node = agent.nodes.get(recording.node)
    if node is None and recording.node != UNDO_NODE:  # an undo visit is run by the engine, not by the agent
        found.difference = Difference("", f"the run is at node {recording.node!r}", f"has {_names(agent.nodes)}")
        return found
    at = Snapshot(recording.node, recording.visit, recording.generation, recording.fingerprint, recording.state)
    try:
        begins = entered(Tape(recording.events), at)
        state: BaseModel = (Plan if node is None else agent.state).model_validate(begins)
    except ValidationError as error:
        found.difference = Difference("", f"the state {format_value(recording.state)}", f"does not take it: {error}")
        return found
    remembering = Remembering(hasher or HASHER)
    events = list(recording.events) if hasher else rehashed(recording.events, remembering)
    tape = Tape(event for event in events if not recording.is_next(event))
    if hasher is None:
        _without_digests(tape)
    visit = _Visit(recording, agent, tape, events, remembering, is_strict=hasher is not None)
    try:
        with _hands_off(agent):
            outcome: Outcome | Undone
            if node is not None:
                outcome = await run_visit(visit, node, state)
            else:
                outcome = await undo_visit(visit, Plan.model_validate(state))
    except (Exception, SystemExit) as error:  # an exception raised by the visit itself is not an outcome of the node
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
        found.difference = Difference(
            visit.last_asked, "the visit goes on", f"stops with {problem}", _error_place(error)
        )
        return found
    found.answered = sorted(visit.known.answered, key=place_key)
    if isinstance(visit.changes, _Watched):
        found.states, found.last = visit.changes.states, visit.changes.at_last()
    found.beyond = [call_in_words(*visit.known.asked.get(slot, (slot, None))) for slot in visit.fresh]
    found.difference = _difference(recording, visit, outcome)
    return found


def _without_digests(tape: Tape) -> None:
    """Drop the digests of Pydantic AI requests, which can't be compared under another key.

    For these requests only the places and the resulting calls are compared.
    """
    for attempt in (attempt for slot in tape.slots.values() for attempt in slot.attempts.values()):
        if isinstance(attempt.intent, e.ModelRequested) and DIGESTS in payload_of(attempt.intent):
            attempt.intent = e.Event(slot=attempt.intent.slot)


def _error_place(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return ", ".join(f"{frame.name}, line {frame.lineno}" for frame in last)


def _names(of: Any) -> str:
    return ", ".join(of) or NOTHING


# --- nothing leaves ---------------------------------------------------------------------------------------------------


@contextmanager
def _hands_off(agent: Agent) -> Iterator[None]:
    """Replace the functions and hooks of the agent's tools during the replay, so that nothing is sent."""
    agent.fingerprint()  # computed first, because it is based on the tools' own functions
    tools = [(tool, tool.opened(FOR_DISPATCH), tool.reconcile) for tool in agent.all_tools()]
    for tool, _, hook in tools:
        _set(tool, _refusing_async if tool.is_async else _refusing, None if hook is None else _knows_nothing)
    try:
        yield
    finally:
        for tool, function, hook in tools:
            _set(tool, function, hook)


def _set(tool: Tool, function: Callable[..., Any], hook: Any) -> None:
    object.__setattr__(tool, "_function", function)
    object.__setattr__(tool, "reconcile", hook)


def _refusing(args: Any, call: Any) -> NoReturn:
    raise RuntimeError(f"a replay does not call {call.tool}")


async def _refusing_async(args: Any, call: Any) -> NoReturn:
    _refusing(args, call)


async def _knows_nothing(args: Any, call: Any) -> None:
    return None


async def _no_model(assistant: Assistant, *_: Any) -> ModelTurn:
    raise RuntimeError(f"a replay does not ask {assistant.name}")


# --- the visit --------------------------------------------------------------------------------------------------------


class _Recall:
    """Compares calls with their records: by arguments and, if the hasher is that of the record, also by digest."""

    def __init__(
        self, tape: Tape, events: Sequence[e.Event], hasher: Remembering, placeholders: Sequence[str], is_strict: bool
    ) -> None:
        self._tape, self.reached = tape, set[str]()
        self._hasher, self._placeholders, self._is_strict = hasher, placeholders, is_strict
        self._by_slot: dict[str, list[e.Event]] = {}
        for event in events:
            self._by_slot.setdefault(event.slot or "", []).append(event)
        self.asked: dict[str, tuple[str, Any]] = {}
        self.answered: set[str] = set()
        self.misfit = ""

    def record(self, slot: str, what: str, requested_hash: str, arguments: Any) -> Slot | Broken:
        task = self._hasher.of(requested_hash)
        value = arguments if arguments is not None else task.get("arguments", _without(task))
        self.asked[slot] = what, value or None
        record = self._tape.slot(slot)
        self.reached.add(slot)
        if record.what is None:
            if slot in self._tape.parents:
                return differs(slot, describe_call("think"), describe_call(what, "", value))
            return record
        known = asked_for(record) if record.what not in ("model", "ask") else None
        if ARGUMENTS in recorded_replacements(record):  # the record contains a hook's replacement
            known = None
        if record.what != what:
            return differs(slot, describe_call(record.what, "", known), describe_call(what, "", value))
        misfit = self._misfit(slot, what, known, value, task)
        if misfit is None and self._is_strict and record.requested_hash not in ("", requested_hash):
            misfit = "its digest is another one"
        if misfit is not None:
            self.misfit = misfit
            return differs(slot, describe_call(what, "", known), describe_call(what, "", value))
        if record.now.outcome is not None:
            self.answered.add(slot)
        return record

    def _misfit(self, slot: str, what: str, known: Any, value: Any, task: dict[str, Any]) -> str | None:
        if known is not None:
            return first_misfit(known, value, self._placeholders)
        fields: dict[str, Any] = {}
        for event in self._by_slot.get(slot, ()):
            if what == "model" and isinstance(event, e.ModelRequested):
                fields = {} if DIGESTS in payload_of(event) else payload_of(event)
            if what == "ask" and isinstance(event, e.WaitOpened) and event.n == 0:
                task, fields = task.get("ask", {}), payload_of(event)
        shared = sorted((fields.keys() & task.keys()) - {"earlier"})  # `earlier` is a digest
        return first_misfit({k: fields[k] for k in shared}, {k: task[k] for k in shared}, self._placeholders)

    def unreached(self) -> list[str]:
        """Return the recorded calls that the code did not reach, in the order of their places."""
        return sorted(
            (
                name
                for name, slot in self._tape.slots.items()
                if name[:1].isdigit() and slot.what is not None and name not in self.reached
            ),
            key=place_key,
        )

    def words(self, slot: str) -> str:
        """Return a recorded call as text."""
        record = self._tape.slot(slot)
        return call_in_words(record.what or NOTHING, asked_for(record))


def _without(task: dict[str, Any]) -> Any:
    return {name: value for name, value in task.items() if name not in ("tools", "turn")} or None


class _Watched(Changes):
    """Tracks the node's state after each call on its own branch, in addition to applying changes."""

    def __init__(self, *known: Any) -> None:
        super().__init__(*known)
        self.states: dict[int, Any] = {}

    is_watched = True

    def take_over(self, place: int | None = None) -> None:
        super().take_over(place)
        if place is not None and (state := self.at_last()) is not None:
            self.states[place] = state

    def at_last(self) -> Any:
        """Return the current state as plain data; None if it can't be represented that way."""
        try:
            return self.now()
        except ValueError:
            return None


class _Visit(Visit):
    """A visit that stops where the record ends."""

    def __init__(
        self,
        recording: Recording,
        agent: Agent,
        tape: Tape,
        events: Sequence[e.Event],
        hasher: Remembering,
        *,
        is_strict: bool,
    ) -> None:
        runtime = Runtime(
            hasher=hasher,
            call_secret=b"durableagents replays",
            request_model=_no_model,
            callback_url=lambda token: f"https://replay.invalid/{token}",
            guards=(FORK_FENCE,),  # this guard knows recorded refusals; the other guards would ask again
        )
        journal = _Journal(recording)
        super().__init__(
            agent,
            journal,
            runtime,
            Control(),
            tape,
            Meter(UNLIMITED),
            node=recording.node,
            number=recording.visit,
            generation=recording.generation,
            created=recording.created,
            trace_id="0" * 32,
            depth=recording.depth,
        )
        self.known = _Recall(tape, events, hasher, recording.placeholders, is_strict)
        self.reached = self.known.reached
        self.fresh: list[str] = []

    def changes_of(self, state: BaseModel) -> Changes:
        """Return changes that also track the node's state."""
        return _Watched(type(state), state, handled_in(self.tape, self.places.visit))

    @property
    def last_asked(self) -> str:
        return next(reversed(self.known.asked), "")

    def _beyond(self, slot: str) -> NoReturn:
        """Stop this branch, because the record ends here."""
        if slot not in self.known.asked:  # the event belongs to the last call, such as a choice of its model
            slot = self.last_asked
        if slot not in self.fresh:
            self.fresh.append(slot)
        self.park(WaitSpec(self.run_id, slot, 0, "beyond", 0, self.journal.now()))

    def recall(self, slot: str, what: str, requested_hash: str, arguments: Any = None) -> Slot:
        """Compare a call with its record, and park where the record ends."""
        if self.has_ended:
            raise Unwind
        record = self.known.record(slot, what, requested_hash, arguments)
        if isinstance(record, Broken):
            self.stop(record)
        if record.what is None and what not in _NOT_AWAITED and not what.startswith("gather of "):
            self._beyond(slot)
        return record

    def afford(self, slot: str, attempt: int, wanted: Usage, *, is_reserved: bool = False) -> None:
        if is_reserved:  # the call is only about to begin, so the record ends here
            self._beyond(slot)

    async def asked(self, slot: str) -> QuestionRecord:
        """Return a question of this visit.

        Stop the branch at a question of an earlier visit, which is missing from the recording.
        """
        if (known := self.tape.slots.get(slot)) is None or known.gate is None:
            self._beyond(self.last_asked)
        return await super().asked(slot)

    async def commit(self, batch: Batch) -> Reply:
        self._beyond(next((event.slot for event in batch.events if event.slot is not None), ""))

    async def check_repeat(self, slot: str, attempt: int, key: str = "", *, judged: int | None = None) -> None:
        self._beyond(slot)

    def buffer(self, event: e.Event) -> None:
        """Note a value from outside that is not in the record. The node may still continue to its next call."""
        if isinstance(event, e.ValueRead) and event.slot is not None:
            self.fresh.append(event.slot)


class _Journal(MemoryJournal):
    def __init__(self, recording: Recording) -> None:
        run = MemoryRun(recording.run_id, recording.graph_id, depth=recording.depth, epoch=1, lease=UUID(int=1))
        run.events = [recording.created, *recording.before, *recording.events]
        super().__init__(run, Lease(1, UUID(int=1)))

    async def signal(self, name: str, n: int) -> e.SignalReceived | e.SignalCarried:
        try:
            return await super().signal(name, n)
        except JournalBroken as error:
            raise JournalBroken(f"{error}: the file does not contain it") from None


# --- the result -------------------------------------------------------------------------------------------------------


def _difference(recording: Recording, visit: _Visit, outcome: Outcome | Undone) -> Difference | None:
    known, ending = visit.known, recording.ending
    if isinstance(outcome, Broken):
        return _broken(outcome, known)
    skipped = known.unreached()
    passed = [(s, later) for s in visit.fresh for later in skipped if _is_line(s, later)]
    if passed:
        slot, later = passed[0]
        note = f"it continues with {known.words(later)} at {later}"
        return Difference(slot, NOTHING, f"asks for {call_in_words(*known.asked[slot])}", note)
    ends = ending is not None and not isinstance(ending, (e.RunFailed, e.RunCancelled))
    if ends and visit.fresh:
        slot = visit.fresh[0]
        call_text = call_in_words(*known.asked.get(slot, (slot, None)))
        return Difference(slot, f"{NOTHING} more: {_end_in_words(ending)}", f"asks for {call_text}")
    is_told = isinstance(outcome, Crashed) and not isinstance(ending, e.RunFailed)  # the crash itself is reported
    if skipped and not (is_told and (ending is not None or _waits(visit.tape))):
        return Difference(skipped[0], known.words(skipped[0]), f"does not request it: {_outcome_in_words(outcome)}")
    return _another_end(recording, visit, outcome, ending)


def _broken(outcome: Broken, known: _Recall) -> Difference:
    payload = outcome.payload
    if outcome.reason != "non_determinism":
        slot = str(payload.get("slot", ""))
        return Difference(slot, known.words(slot) if slot else NOTHING, str(payload.get("problem", outcome.reason)))
    recorded, now = (
        call_in_words(payload[side]["call"], payload[side].get("arguments")) for side in ("recorded", "now")
    )
    return Difference(payload["slot"], recorded, f"asks for {now}", known.misfit)


def _is_line(slot: str, later: str) -> bool:
    return slot.rpartition("/")[0] == later.rpartition("/")[0] and place_key(slot) < place_key(later)


def _another_end(
    recording: Recording, visit: _Visit, outcome: Outcome | Undone, ending: e.Event | None
) -> Difference | None:
    outcome_text = _outcome_in_words(outcome)
    match ending, outcome:
        case (None, Crashed()) if waits := _waits(visit.tape):  # without waits, the end may just not be recorded yet
            return Difference(visit.last_asked, f"the run waits for {', '.join(waits)}", outcome_text)
        case (e.VisitEntered(), Advanced()) if outcome.node == ending.node:
            state = between(visit.tape, f"{recording.generation}.{recording.visit}", outcome.state)
            misfit = None
            if recording.after is not None:
                misfit = first_misfit(recording.after, state, recording.placeholders)
            return misfit and Difference(
                "", f"the next state {format_value(recording.after)}", f"gives {format_value(state)}", misfit
            )  # type: ignore[return-value]
        case (e.RunCompleted(), Finished()):
            misfit = first_misfit(ending.payload, outcome.output, recording.placeholders)
            return misfit and Difference("", _end_in_words(ending), outcome_text, misfit)  # type: ignore[return-value]
        case (e.RunRenewed(), Renewed()) | (None | e.RunCancelled(), _):
            return None
        case (e.RunHandedOff(), HandedOver()) if outcome.agent.graph_id == ending.agent:
            return None
        case (e.RunFailed(), Crashed()) if outcome.code == ending.code:
            return None
        case (e.RunFailed(), _) if visit.fresh or not isinstance(outcome, (Advanced, Finished, Crashed)):
            return None  # the run failed in a call, or for a reason outside the node
        case _:
            return Difference("", _end_in_words(ending), outcome_text)


def _waits(tape: Tape) -> list[str]:
    """Return the waits that are open at the end of the record.

    A result is recorded before a call that waits for it continues, so the code must still wait here.
    """
    slots = [(name, slot.now) for name, slot in tape.slots.items() if slot.now.outcome is None]
    open_ones = ((name, kind) for name, now in slots for (kind, _), end in now.waits.items() if end is None)
    return [f"{kind} at {name}" for name, kind in open_ones]


def _end_in_words(ending: e.Event | None) -> str:
    match ending:
        case e.VisitEntered():
            return f"the run goes on to node {ending.node!r}"
        case e.RunCompleted():
            return f"the run ends with {format_value(ending.payload)}"
        case e.RunFailed():
            return f"the run fails with {ending.code}"
        case None:
            return "the run goes on"
        case _:
            return ending.KIND


def _outcome_in_words(outcome: Outcome | Undone) -> str:
    match outcome:
        case Advanced():
            return f"goes on to node {outcome.node!r}"
        case Finished():
            return f"ends with {format_value(outcome.output)}"
        case Crashed():
            return f"fails with {outcome.code}: {outcome.message}"
        case Undone():
            return "ends, and all is undone"
        case Renewed():
            return "goes on as a new run"
        case HandedOver():
            return f"hands off to {outcome.agent.graph_id}"
        case _:
            return "waits"
