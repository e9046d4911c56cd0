"""What messages and operators change of a run's state: as it is recorded, and how a node that waited takes it over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from ledger import events as e
from runs.engine.canonical import canonical, plain
from runs.engine.errors import JournalBroken
from runs.engine.journal import Snapshot, WaitSpec
from runs.engine.tape import Tape

Change = e.MessageHandled | e.ContextInjected
# Where the node stood that was handed something: `place` of a change that it takes over as it is entered, and of one
# that comes when it is done, before the next.
ENTRY, BETWEEN = -1, 0


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


def with_changes(state: dict[str, Any], handled: Sequence[Change]) -> dict[str, Any]:
    """A state as plain data, after what these changed of it."""
    for event in handled:
        told = event.payload if isinstance(event.payload, dict) else {}
        state = {name: value for name, value in state.items() if name not in told.get("gone", ())}
        state |= told.get("change", {})
    return state


def changes_in(events: Sequence[e.Event]) -> list[Change]:
    """Those of these events that may change a state, in order."""
    return [event for event in events if isinstance(event, (e.MessageHandled, e.ContextInjected))]


def handled_in(tape: Tape, visit: str) -> list[Change]:
    """What messages and operators changed in a visit (generation and number), in order."""
    return [event for event in tape.handled if event.visit == visit]


def taken_at(tape: Tape, slot: str) -> e.MessageHandled:
    """The message that a call had waited for and got. Raises JournalBroken where the journal has none."""
    for event in reversed(tape.handled):
        if isinstance(event, e.MessageHandled) and slot in event.calls:
            return event
    raise JournalBroken(f"the call at slot {slot} got a message that is not on record")


def fields_changed(event: Change) -> list[str]:
    """The state's fields that it changed, by the names that they had then."""
    told = event.payload if isinstance(event.payload, dict) else {}
    return [*told.get("change", ()), *told.get("gone", ())]


def number_of_changes(event: Change) -> int:
    """The number of the state that it changed."""
    return int(event.payload.get("number", 1)) if isinstance(event.payload, dict) else 1


def between(tape: Tape, over: str, state: Any) -> Any:
    """The state in which a visit ended, after what was changed of it before the next began."""
    at_its_end = [event for event in handled_in(tape, over) if event.place == BETWEEN]
    return with_changes(state, at_its_end) if at_its_end else state


def entered(tape: Tape, at: Snapshot) -> Any:
    """The state in which a node begins: its checkpoint's, after what operators changed of it when it had made no call
    yet."""
    first = [event for event in handled_in(tape, f"{at.generation}.{at.visit}") if event.place == ENTRY]
    return with_changes(at.state, first) if first else at.state


class Changes:
    """What was changed in one visit by messages and operators on record, and how far the node has taken that over. It
    does at the end of the step that it stood in: one that waits in several branches, at the end of them all."""

    def __init__(self, model: type[BaseModel], state: BaseModel, handled: Sequence[Change]) -> None:
        self._model, self._state = model, state
        self.listening: list[WaitSpec] = []  # waits for messages that the node's branches have come to
        self._ahead: list[Change] = []
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
        """More was changed while the node waited."""
        self._ahead += [x for x in changes_in(events) if x.place > BETWEEN and fields_changed(x)]

    def now(self) -> dict[str, Any]:
        """The state as plain data: as the node left it where it waits, after what messages changed there. Raises
        ValueError where it is no plain data."""
        return with_changes(plain(self._state), self._ahead)
