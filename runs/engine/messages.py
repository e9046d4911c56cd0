"""Messages and views that agents declare for their runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, RootModel

from ledger import events as e
from runs.engine.canonical import canonical, plain, printable
from runs.engine.errors import DefinitionError, JournalBroken, Refused, describe_error, traceback_of
from runs.engine.journal import Snapshot, WaitSpec
from runs.engine.tape import Tape
from runs.engine.tools import must_be_stable

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Message:
    """A declared message: its name, its request and answer models, its handler and its check."""

    name: str
    takes: type[BaseModel]
    answers: type[BaseModel] | None
    function: Callable[..., Any]
    check: Callable[..., Any] | None
    title: str
    doc: str


@dataclass(frozen=True, slots=True)
class View:
    """A named view of the recorded state."""

    name: str
    answers: type[BaseModel]
    function: Callable[..., Any]
    title: str
    doc: str


def message_of(
    agent: str,
    state: type[BaseModel],
    function: Callable[..., Any],
    *,
    name: str,
    takes: type[BaseModel],
    answers: type[BaseModel] | None,
    check: Callable[..., Any] | None,
    title: str,
) -> Message:
    """Return a declared message. Raises DefinitionError."""
    name = _named(agent, "message", function, name)
    if issubclass(state, RootModel):
        raise DefinitionError(
            f"{agent}: messages change the state, but {state.__name__} has no fields: give state= a model with fields"
        )
    _plain_function(f"{agent}: message {name!r}", function)
    if check is not None:
        _plain_function(f"{agent}: the check of message {name!r}", check)
    _model(f"{agent}, message {name!r}, takes", takes)
    if answers is not None:
        _model(f"{agent}, message {name!r}, answers", answers)
    return Message(name, takes, answers, function, check, title or name.replace("_", " "), _doc(function))


def view_of(agent: str, function: Callable[..., Any], *, name: str, answers: type[BaseModel], title: str) -> View:
    """Return a declared view. Raises DefinitionError."""
    name = _named(agent, "view", function, name)
    _plain_function(f"{agent}: view {name!r}", function)
    _model(f"{agent}, view {name!r}, answers", answers)
    return View(name, answers, function, title or name.replace("_", " "), _doc(function))


def _named(agent: str, what: str, function: Callable[..., Any], name: str) -> str:
    name = name or getattr(function, "__name__", "")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise DefinitionError(f"{agent}: {what} name {name!r} is invalid: use lower_snake_case, at most 64 characters")
    return name


def _plain_function(what: str, function: Callable[..., Any]) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise DefinitionError(f"{what} must be a plain `def`, because it can't make calls")


def _model(what: str, model: Any) -> None:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise DefinitionError(f"{what}: {model!r} is not a Pydantic model: give one")
    must_be_stable(what, model)


def _doc(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "")


Change = e.MessageHandled | e.ContextInjected
# Values of `place`: the change applies when the node is entered, or after the node and before the next one.
ENTRY, BETWEEN = -1, 0


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the changes for the record: the new values of fields, and the names of removed fields."""
    change = {name: new for name, new in after.items() if name not in before or not _are_equal(before[name], new)}
    gone = sorted(before.keys() - after.keys())
    return ({"change": change} if change else {}) | ({"gone": gone} if gone else {})


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return canonical(one) == canonical(other)  # unlike Python, this distinguishes 1 from True and from 1.0
    except ValueError:
        return False  # recording a field needlessly is better than omitting a change


def with_changes(state: dict[str, Any], handled: Sequence[Change]) -> dict[str, Any]:
    """Return a plain state with these changes applied."""
    for event in handled:
        payload = event.payload if isinstance(event.payload, dict) else {}
        state = {name: value for name, value in state.items() if name not in payload.get("gone", ())}
        state |= payload.get("change", {})
    return state


def changes_in(events: Sequence[e.Event]) -> list[Change]:
    return [event for event in events if isinstance(event, (e.MessageHandled, e.ContextInjected))]


def handled_in(tape: Tape, visit: str) -> list[Change]:
    """Return the changes that messages and operators made in a visit ("generation.number"), in order."""
    return [event for event in tape.handled if event.visit == visit]


def taken_at(tape: Tape, slot: str) -> e.MessageHandled:
    """Return the message that a waiting call received. Raises JournalBroken if there is none."""
    for event in reversed(tape.handled):
        if isinstance(event, e.MessageHandled) and slot in event.calls:
            return event
    raise JournalBroken(f"the call at slot {slot} received a message that is not recorded")


def fields_changed(event: Change) -> list[str]:
    """Return the fields that a change affects, by their names at that time."""
    payload = event.payload if isinstance(event.payload, dict) else {}
    return [*payload.get("change", ()), *payload.get("gone", ())]


def number_of_changes(event: Change) -> int:
    return int(event.payload.get("number", 1)) if isinstance(event.payload, dict) else 1


def between(tape: Tape, over: str, state: Any) -> Any:
    """Return the state at a visit's end, with the changes made before the next visit."""
    at_its_end = [event for event in handled_in(tape, over) if event.place == BETWEEN]
    return with_changes(state, at_its_end) if at_its_end else state


def entered(tape: Tape, at: Snapshot) -> Any:
    """Return a node's initial state: the checkpoint's, with the changes that operators made before the first call."""
    first = [event for event in handled_in(tape, f"{at.generation}.{at.visit}") if event.place == ENTRY]
    return with_changes(at.state, first) if first else at.state


class Changes:
    """The changes recorded in one visit, with those that the node has applied.

    A change is applied at the end of the node's step.
    """

    is_watched = False  # whether `take_over` must run at every step, even without changes

    def __init__(self, model: type[BaseModel], state: BaseModel, handled: Sequence[Change]) -> None:
        self._model, self._state = model, state
        self.listening: list[WaitSpec] = []  # waits for messages that the node's branches have reached
        self.ahead: list[Change] = []
        self.add(handled)

    def take_over(self, place: int | None = None) -> None:
        """Apply the changes up to the node's `place`-th call, or all of them.

        Each changed field gets a new object.
        """
        due = [event for event in self.ahead if place is None or event.place <= place]
        if not due:
            return
        self.ahead = [event for event in self.ahead if event not in due]
        before = plain(self._state)
        after = with_changes(before, due)
        changed = difference(before, after)
        fresh = self._model.model_validate(after)
        names = {*changed.get("change", ()), *changed.get("gone", ())}
        for name, field in self._model.model_fields.items():
            if {name, field.alias, field.serialization_alias} & names:
                self._state.__dict__[name] = fresh.__dict__[name]
                self._state.__pydantic_fields_set__.add(name)
        if self._state.__pydantic_extra__ is not None:
            self._state.__pydantic_extra__.clear()
            self._state.__pydantic_extra__.update(fresh.__pydantic_extra__ or {})

    def add(self, events: Sequence[e.Event]) -> None:
        """Add changes that were made while the node waited."""
        self.ahead += [x for x in changes_in(events) if x.place > BETWEEN and fields_changed(x)]

    def now(self) -> dict[str, Any]:
        """Return the node's state as plain data, including changes made since it began to wait. Raises ValueError."""
        return with_changes(plain(self._state), self.ahead)


class Takes(Protocol):
    """The part of an agent's interface that handling messages needs."""

    @property
    def graph_id(self) -> str: ...
    @property
    def state(self) -> type[BaseModel]: ...
    @property
    def schema_version(self) -> int: ...
    @property
    def messages(self) -> dict[str, Message]: ...


def handle(agent: Takes, state: Callable[[], dict[str, Any]], came: e.MessageReceived) -> tuple[str, dict[str, Any]]:
    """Return the outcome of handling a message, and its record.

    The handler gets a copy of the state, so a failing handler changes nothing.
    """
    message = agent.messages.get(came.name)
    if message is None:
        return "failed", {"code": "unknown_message", "message": f"{agent.graph_id} takes no message {came.name!r}"}
    try:
        own = agent.state.model_validate(state())
        before = plain(own)
        given = message.function(own, message.takes.model_validate(came.payload))
        fields: dict[str, Any] = {}
        if message.answers is not None:
            fits = isinstance(given, message.answers)
            fields["answer"] = plain(given if fits else message.answers.model_validate(given))
        after = plain(own)
        agent.state.model_validate(after)
        changed = difference(before, after)
        if changed and agent.schema_version > 1:
            changed["number"] = agent.schema_version
        return "answered", fields | changed
    except Refused as no:
        return "refused", {"code": printable(str(no.code)), "message": printable(str(no.message))}
    except (Exception, SystemExit) as error:
        return "failed", {"code": "handler_error", "message": describe_error(error), "traceback": traceback_of(error)}


def handled(
    agent: Takes,
    state: Callable[[], dict[str, Any]],
    came: e.MessageReceived,
    *,
    visit: str,
    place: int,
    waiting: Sequence[WaitSpec] = (),
) -> tuple[list[e.Event], list[WaitSpec]]:
    """Return the events of handling a message, and the waits that end with it.

    An answer ends waits for the message's name or for any message.
    """
    outcome, payload = handle(agent, state, came)
    ended = [w for w in waiting if came.name in (w.detail["names"] or [came.name])] if outcome == "answered" else []
    event = e.MessageHandled(
        name=came.name,
        n=came.n,
        outcome=outcome,
        visit=visit,
        place=place,
        calls=[w.slot for w in ended],
        payload=payload,
    )
    resolved = [
        e.WaitResolved(slot=w.slot, attempt=w.attempt, wait=w.kind, n=w.n, resolution="received", by="system:engine")
        for w in ended
    ]
    return [event, *resolved], ended


def outcome_of(events: list[e.Event]) -> str:
    return next(event.outcome for event in events if isinstance(event, e.MessageHandled))


def note(tape: Tape, events: list[e.Event]) -> None:
    for event in events:
        tape.add(event)
