"""What messages change of a run's state: as it is recorded, and how a node that waited takes it over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from ledger import events as e
from runs.engine.canonical import canonical, plain
from runs.engine.errors import JournalBroken
from runs.engine.journal import WaitSpec
from runs.engine.tape import Tape


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What was changed, for the record: fields with their new values, each whole, and the names of those that are
    gone. Empty where nothing was."""
    change = {name: new for name, new in after.items() if name not in before or not _same(before[name], new)}
    gone = sorted(before.keys() - after.keys())
    return ({"change": change} if change else {}) | ({"gone": gone} if gone else {})


def _same(one: Any, other: Any) -> bool:
    try:
        return canonical(one) == canonical(other)  # 1 and True, 1 and 1.0 are equal in Python only
    except ValueError:
        return False  # recorded once too often rather than left out


def with_changes(state: dict[str, Any], handled: Sequence[e.MessageHandled]) -> dict[str, Any]:
    """A state as plain data, after what these messages changed of it."""
    for event in handled:
        told = event.payload if isinstance(event.payload, dict) else {}
        state = {name: value for name, value in state.items() if name not in told.get("gone", ())}
        state |= told.get("change", {})
    return state


def handled_in(tape: Tape, visit: str) -> list[e.MessageHandled]:
    """The messages that were handled in a visit (generation and number), in order."""
    return [event for event in tape.handled if event.visit == visit]


def taken_at(tape: Tape, slot: str) -> e.MessageHandled:
    """The message that a call had waited for and got. Raises JournalBroken where the journal has none."""
    for event in reversed(tape.handled):
        if slot in event.calls:
            return event
    raise JournalBroken(f"the call at slot {slot} got a message that is not on record")


def fields_changed(event: e.MessageHandled) -> list[str]:
    """The state's fields that a message changed, by the names that they had then."""
    told = event.payload if isinstance(event.payload, dict) else {}
    return [*told.get("change", ()), *told.get("gone", ())]


def number_of_changes(event: e.MessageHandled) -> int:
    """The number of the state that a message changed."""
    return int(event.payload.get("number", 1)) if isinstance(event.payload, dict) else 1


def between(tape: Tape, over: str, state: Any) -> Any:
    """The state in which a visit ended, after what messages changed of it before the next began."""
    at_its_end = [event for event in handled_in(tape, over) if not event.place]
    return with_changes(state, at_its_end) if at_its_end else state


class Changes:
    """What the recorded messages of one visit changed, and how far the node has taken that over. It does at the end of
    the step that it waited in: one that waits in several branches, at the end of them all."""

    def __init__(self, model: type[BaseModel], state: BaseModel, handled: Sequence[e.MessageHandled]) -> None:
        self._model, self._state = model, state
        self.listening: list[WaitSpec] = []  # waits for messages that the node's branches have come to
        self._ahead: list[e.MessageHandled] = []
        self.add(handled)

    def __bool__(self) -> bool:
        return bool(self._ahead)

    def take_over(self, place: int | None = None) -> None:
        """The node goes on from its `place`-th call, or is done: what was changed up to there stands in its state. Each
        field that was is another object afterwards."""
        due = [event for event in self._ahead if place is None or event.place <= place]
        if not due:
            return
        self._ahead = [event for event in self._ahead if event not in due]
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
        """More messages were handled while the node waited."""
        self._ahead += [x for x in events if isinstance(x, e.MessageHandled) and x.place and fields_changed(x)]

    def now(self) -> dict[str, Any]:
        """The state as plain data: as the node left it where it waits, after what messages changed there. Raises
        ValueError where it is no plain data."""
        return with_changes(plain(self._state), self._ahead)
