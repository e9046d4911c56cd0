"""Decides in memory, from the record alone, whether and how a run can migrate to another version.

If the new code can replay the current visit (`replaying.py`), the run continues in the middle of its node. Otherwise
the node starts over, provided that this doesn't repeat anything that must happen only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.canonical import Hasher, plain
from runs.engine.checkpoints.position import REENTERED, REPLAYED, UNBEGUN, Position
from runs.engine.errors import describe_error
from runs.engine.gating.stages import in_words, required_by
from runs.engine.journal import Snapshot
from runs.engine.messages import changes_in, fields_changed, number_of_changes, with_changes
from runs.engine.migration import UnknownFormat
from runs.engine.recordings.recording import Recording, needed
from runs.engine.recordings.replaying import replay
from runs.engine.tape import Slot, Tape, payload_of
from runs.engine.tools import ReplayClass
from runs.engine.undo import UNDO_NODE

REFUSED: Final = "refused"
# Reasons of operator stops that mean that code and run don't fit, or that the code is wrong. New code resolves such
# stops; other stops concern the run's record, and remain.
SOLVED = frozenset(
    {
        "other_code",
        "unknown_node",
        "bad_checkpoint",
        "non_determinism",
        "recorded_arguments",
        "recorded_result",
        "recorded_answer",
        "unknown_tool",
        "unknown_queue",
        "definition",
        "uncertified_tool",
        "poison",
        "unknown_format",
    }
)


@dataclass(frozen=True, slots=True)
class Moving:
    """A requested migration between versions (name@version).

    `nodes` maps nodes, `state` converts the state, and with `retry` failed runs are retried. `number` is the schema
    number of the state, at which upgrading starts (0 if unknown). With `is_numbered`, the old version's schema number
    is above 1, so an unknown number can't be assumed to be 1.
    """

    of: str
    to: Agent
    nodes: Mapping[str, str]
    state: Callable[[dict[str, Any]], Any] | None = None
    retry: bool = False
    number: int = 1
    is_numbered: bool = False

    @property
    def makes_state(self) -> bool:
        return self.state is not None or (self.number or 1) != self.to.schema_version

    def made_of(self, state: Any) -> Any:
        """Return a state converted for the new version. Raises UnknownFormat, and the errors of the author's code."""
        if self.state is not None:
            made = self.state(plain(state))
            return plain(made) if isinstance(made, BaseModel) else made
        if not self.number and (self.is_numbered or self.to.schema_version > 1):
            raise UnknownFormat("its state was written by unknown code, so its number is unknown")
        return self.to.upgraded(self.number or 1, state) if self.makes_state else state


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """The result for one run: `how` it continues, or `code` and `why` if it can't.

    `closes` are waits that end with the migration.
    """

    how: str
    code: str = ""
    why: str = ""
    at: Snapshot = field(default_factory=lambda: Snapshot("", 0, 0, "", None))
    node: str = ""
    state: Any = None
    answered: Sequence[str] = ()
    repeated: Sequence[str] = ()
    closes: Sequence[tuple[str, int, str, int]] = ()
    number: int = 1

    @property
    def is_refused(self) -> bool:
        return self.how == REFUSED


def refused(code: str, why: str) -> MigrationResult:
    return MigrationResult(REFUSED, code, why)


class _No(Exception):
    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


async def tried(
    moving: Moving,
    run_id: str,
    created: e.RunCreated,
    position: Position,
    earlier: Sequence[e.Event],
    *,
    depth: int,
    hasher: Hasher,
) -> MigrationResult:
    """Decide about a run at this position. `earlier` are events before that position that its calls may need."""
    tape = Tape(position.tail)
    try:
        closes = _must_be_quiet(position, tape)
        if position.at.node == "" and position.entry is None:
            return _unbegun(moving, created, position, closes)
        node, state = position.entry or (position.at.node, position.at.state)
        if node not in moving.nodes:
            raise _No("node_left_out", f"it is at node {node!r}, which the mapping does not contain")
        node = moving.nodes[node]
        why = "it has not entered a node"
        if position.entry is None:
            found = await _replayed(moving, run_id, created, position, earlier, node, tape, depth=depth, hasher=hasher)
            if isinstance(found, MigrationResult):
                return replace(found, at=position.at, node=node, closes=closes, number=moving.number or 1)
            why = found
        return _reentered(moving, position, tape, node, state, why)
    except _No as no:
        return refused(no.code, str(no))


# --- conditions for any move ------------------------------------------------------------------------------------------


def _must_be_quiet(position: Position, tape: Tape) -> list[tuple[str, int, str, int]]:
    """Return the waits of stops that the migration resolves. Raises _No for other stops and unknown outcomes."""
    if position.at.node == UNDO_NODE:
        raise _No("undoing", "it is undoing its effects, which no other version may take over")
    unknown_outcomes = [f"{slot.what} at {name}" for name, slot in tape.in_doubt()]
    unknown_outcomes += [f"{slot.what} at {name}" for name, slot in tape.slots.items() if slot.is_asked_about]
    if unknown_outcomes:
        raise _No(
            "in_doubt", f"the outcome is unknown of {', '.join(dict.fromkeys(unknown_outcomes))}: settle that first"
        )
    stops = _open_stops(position.tail)
    if others := [reason for reason in stops.values() if reason not in SOLVED]:
        raise _No("stopped", f"the run stopped for an operator ({others[0]}), which migrating it does not resolve")
    return [(slot, 0, "operator", n) for slot, n in stops]


def _open_stops(tail: Sequence[e.Event]) -> dict[tuple[str, int], str]:
    stops: dict[tuple[str, int], str] = {}
    reason = ""
    for event in tail:
        match event:
            case e.OperatorNeeded():
                reason = event.reason
            case e.WaitOpened(wait="operator"):
                stops[event.slot or "", event.n] = reason
            case e.WaitResolved(wait="operator"):
                stops.pop((event.slot or "", event.n), None)
    return stops


# --- the state --------------------------------------------------------------------------------------------------------


def migrated_state(moving: Moving, state: Any) -> Any:
    """Return the state of the new version as plain data. Raises _No."""
    version = moving.to.graph_id
    try:
        made = moving.made_of(state)
    except UnknownFormat as error:
        raise _No("state_number", f"{error}; declare a Migration with a function that converts the state") from error
    except Exception as error:  # the converter is the author's own code
        raise _No("state_function", f"the function that makes its state failed: {describe_error(error)}") from error
    try:
        fitting = plain(moving.to.state.model_validate(made))
    except (ValidationError, ValueError) as error:
        raise _No("state_misfit", f"its state does not fit {version}: {_problems(error)}") from error
    if not moving.makes_state and (lost := sorted(set(lost_of(state, fitting)))):
        raise _No(
            "state_lost",
            f"{version} has an older schema: its state has no field for {', '.join(lost[:5])}; "
            "declare a Migration with a function that converts them",
        )
    return fitting


def _problems(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return describe_error(error)
    errors = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'state'}: {each['msg']}" for each in errors[:5])


def lost_of(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the paths in `before` that don't exist in `after`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            where = f"{path}.{name}" if path else str(name)
            if name not in after:
                yield where
            else:
                yield from lost_of(value, after[name], where)
    elif isinstance(before, list) and isinstance(after, list):
        for i, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from lost_of(one, other, f"{path}.{i}")


# --- the three ways ---------------------------------------------------------------------------------------------------


def _unbegun(
    moving: Moving, created: e.RunCreated, position: Position, closes: Sequence[tuple[str, int, str, int]]
) -> MigrationResult:
    """Migrate a run that has not entered its first node. Only its input must fit."""
    try:
        first = moving.to.begin(moving.to.input.model_validate(created.payload))
        plain(moving.to.state.model_validate(plain(first)))
    except Exception as error:  # the author's own code builds the first state
        why = _problems(error) if isinstance(error, ValueError) else describe_error(error)
        raise _No("input_misfit", f"its input does not fit {moving.to.graph_id}: {why}") from error
    _keeps_messages(moving, position, "a change made before its first node")
    return MigrationResult(UNBEGUN, at=position.at, repeated=["all of it"], closes=closes)


async def _replayed(
    moving: Moving,
    run_id: str,
    created: e.RunCreated,
    position: Position,
    earlier: Sequence[e.Event],
    node: str,
    tape: Tape,
    *,
    depth: int,
    hasher: Hasher,
) -> MigrationResult | str:
    """Replay the visit with the new code. Return the result, or a text that says where the replay differs."""
    state = migrated_state(moving, position.at.state)
    try:
        _keeps_messages(moving, position, "a change made during the visit", is_state_made=moving.makes_state)
    except _No as no:
        return str(no)
    at = position.at
    recording = Recording(
        run_id=run_id,
        graph_id=moving.to.graph_id,
        fingerprint=moving.to.fingerprint(),
        created=created,
        node=node,
        visit=at.visit,
        generation=at.generation,
        state=state,
        events=tuple(position.tail),
        before=needed(earlier, position.tail),
        depth=depth,
    )
    found = await replay(recording, moving.to, hasher=hasher)
    if found.difference is not None:
        return str(found.difference)
    for name, slot in tape.slots.items():
        _must_ask_the_same(moving, name, slot)
    return MigrationResult(REPLAYED, state=state, answered=found.answered, repeated=found.beyond)


def _keeps_messages(moving: Moving, position: Position, what: str, *, is_state_made: bool = False) -> None:
    """Refuse the migration if a recorded change has fields that the new state lacks or may interpret differently."""
    fields = moving.to.state.model_fields
    known = (
        set(fields) | {str(f.alias) for f in fields.values()} | {str(f.serialization_alias) for f in fields.values()}
    )
    for event in changes_in(position.tail):
        names = fields_changed(event)
        is_other = number_of_changes(event) != moving.to.schema_version
        if names and (is_state_made or is_other or not known.issuperset(names)):
            raise _No("message_lost", f"{what} ({', '.join(names)}) has no field in {moving.to.graph_id}")


def _must_ask_the_same(moving: Moving, name: str, slot: Slot) -> None:
    """Refuse the migration if the new gate of a pending call asks other people or states a different reason."""
    gate = slot.gate
    is_no = slot.decision is not None and slot.decision.verdict != "approved"
    if gate is None or slot.was_invoked or is_no:
        return
    tool = moving.to.tool(gate.tool)
    if tool is None or tool.gate is None:
        return
    args = tool.input.model_validate(payload_of(gate).get("arguments"))
    now = in_words(tool.gate.requirement), tool.gate.rule_for(args)
    then = in_words(required_by(gate.payload, gate.queue))
    if tool.gate.is_needed(args) and now != (then, gate.rule):
        raise _No(
            "gate_differs",
            f"{gate.tool} at {name} was put to {then} ({gate.rule}), but {moving.to.graph_id} would put it "
            f"to {now[0]} ({now[1]}): an approval of the first does not count for the second",
        )


def _reentered(moving: Moving, position: Position, tape: Tape, node: str, state: Any, why: str) -> MigrationResult:
    """Return the result of a migration that restarts the node. Raises _No if that would repeat or lose anything."""
    if kept := list(_unrepeatable_acts(position.tail, tape)):
        raise _No("would_repeat", f"{why}, and entering the node again would repeat or lose {'; '.join(kept[:5])}")
    if tape.open_budget() is not None:
        raise _No("budget", f"{why}, and the run is waiting for more budget: settle that first")
    changed = changes_in(position.tail)
    if any(fields_changed(x) and number_of_changes(x) != (moving.number or 1) for x in changed):
        raise _No("message_lost", f"{why}, and its state was changed under a different schema number")
    made = migrated_state(moving, with_changes(state, changed) if changed else state)
    repeated = [f"{slot.what} at {name}" for name, slot in tape.slots.items() if name[:1].isdigit() and slot.what]
    waits = [
        (name, number, kind, n)
        for name, slot in tape.slots.items()
        for number, attempt in slot.attempts.items()
        for (kind, n), end in attempt.waits.items()
        if end is None
    ]
    gates = [(name, 0, "approval", slot.gate.n) for name, slot in tape.slots.items() if slot.gate and not slot.decision]
    return MigrationResult(
        REENTERED, "", why, position.at, node, made, (), repeated, [*waits, *gates], moving.number or 1
    )


def _unrepeatable_acts(tail: Sequence[e.Event], tape: Tape) -> Iterator[str]:
    """Yield what the visit did that must happen only once, and what it received that it can't receive again."""
    for name, slot in tape.slots.items():
        for attempt in slot.attempts.values():
            if isinstance(attempt.intent, e.ToolInvoked) and attempt.intent.replay_class != ReplayClass.PURE:
                yield f"{attempt.intent.tool} at {name}, which was sent"
            if isinstance(attempt.intent, e.ChildStarted):
                yield f"run {attempt.intent.child}, which it started at {name}"
            if isinstance(attempt.result, e.SignalTaken):
                yield f"signal {attempt.result.name} number {attempt.result.n}, taken at {name}"
            if isinstance(attempt.result, e.AnswerTakenOver):
                yield f"the recorded result of {attempt.result.of_run}, which {attempt.result.tool} at {name} used"
            if attempt.answers:
                yield f"the answer of {attempt.answers[max(attempt.answers)].by} at {name}"
            if attempt.route is not None:
                yield f"a model request at {name}, whose cost is not recorded yet"
        if slot.decisions:
            yield f"the decision of {slot.decisions[-1].by} at {name}"
    for event in tail:
        if isinstance(event, e.MessageHandled) and event.calls:
            yield f"message {event.name} number {event.n}, taken at {', '.join(event.calls)}"
        if isinstance(event, e.ContextInjected) and "message" in payload_of(event):
            yield f"the message of {event.by} to its models"
