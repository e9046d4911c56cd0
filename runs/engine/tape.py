"""A visit's recorded past, folded by slot: what a replay is answered from.

Events that concern the run as a whole (claims, pauses, lost workers) change nothing here, so an operator's acts in between can't
change what a replay sees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ledger import events as e


@dataclass
class Attempt:
    """What is known of one attempt at a logical call."""

    intent: e.Event | None = None
    accepted: e.Event | None = None
    result: e.Event | None = None
    answers: dict[int, e.InputAnswered] = field(default_factory=dict)
    unknown: e.Event | None = None
    reconciled: e.ToolReconciled | None = None
    is_in_doubt: bool = False
    resends: int = 0
    not_sents: int = 0
    waits: dict[tuple[str, int], str | None] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        """Whether somebody said what became of it; *fail the run* leaves that open."""
        return self.reconciled is not None and self.reconciled.verdict != "fail"

    def waits_of(self, kind: str) -> int:
        """How many waits of a kind this attempt has opened."""
        return sum(1 for k, _ in self.waits if k == kind)

    def open_wait(self, kind: str) -> int | None:
        """The number of the attempt's unresolved wait of a kind, if there is one."""
        return next((n for (k, n), resolution in self.waits.items() if k == kind and resolution is None), None)


@dataclass
class Slot:
    """What is known of one logical call: what was asked, its gate, its attempts."""

    what: str | None = None
    requested_hash: str | None = None
    branches: e.BranchesOpened | None = None
    gate: e.ApprovalRequested | None = None
    decision: e.ApprovalDecided | None = None
    attempts: dict[int, Attempt] = field(default_factory=dict)
    current: int = 0

    def at(self, attempt: int) -> Attempt:
        """The record of an attempt, empty if there is none."""
        found = self.attempts.get(attempt)
        if found is None:
            found = self.attempts[attempt] = Attempt()
        return found

    @property
    def now(self) -> Attempt:
        """The record of the attempt in force."""
        return self.at(self.current)

    @property
    def was_invoked(self) -> bool:
        """Whether any attempt had an intent: the gate was passed then."""
        return any(a.intent is not None for a in self.attempts.values())

    @property
    def has_effect(self) -> bool:
        """Whether the call did something that can't be taken back, or waited for something: the node went on by it."""
        return self.was_invoked or self.gate is not None or any(kind in _GONE_ON_BY for kind, _ in self.now.waits)

    @property
    def arguments(self) -> Any:
        """What the call was made with, where the journal holds it: with the intent, a read's answer, a refusal or a plan."""
        events = [event for a in self.attempts.values() for event in (a.intent, a.result)]
        return next((payload_of(x)["arguments"] for x in (*events, self.gate) if "arguments" in payload_of(x)), None)

    def asked(self, what: str, requested_hash: str) -> None:
        """Remember what the slot's call was."""
        self.what, self.requested_hash = self.what or what, self.requested_hash or requested_hash


# What a node waits for by itself. Other waits belong to a call whose intent, or gate, is on record.
_GONE_ON_BY = frozenset({"timer", "signal", "input"})


class Tape:
    """All slots of the tail of a journal."""

    def __init__(self, events: Iterable[e.Event] = ()) -> None:
        self.slots: dict[str, Slot] = {}
        self.visits: set[int] = set()
        self.parents: set[str] = set()  # places that number calls of their own, as a `think` or a `gather` does
        self.signals: dict[tuple[str, int], e.SignalReceived] = {}
        for event in events:
            self.add(event)

    def slot(self, name: str) -> Slot:
        """The record of a slot, empty if there is none."""
        found = self.slots.get(name)
        if found is None:
            found = self.slots[name] = Slot()
        return found

    def add(self, event: e.Event) -> None:
        """Fold one event in, in journal order."""
        if isinstance(event, e.RunRetried):
            for name in event.reopened:
                self.slot(name).current += 1
        if isinstance(event, e.VisitEntered):
            self.visits.add(event.visit)
        if isinstance(event, e.SignalReceived):
            self.signals[event.name, event.n] = event
        if event.slot is None:
            return
        place = event.slot.rpartition("/")[0]
        while "/" in place and place not in self.parents:
            self.parents.add(place)
            place = place.rpartition("/")[0]
        slot = self.slot(event.slot)
        _fold(slot, slot.at(event.attempt), event)

    def in_doubt(self) -> list[tuple[str, Slot]]:
        """Slots of tool calls whose intent is on record and whose outcome isn't."""
        return [
            (name, slot)
            for name, slot in self.slots.items()
            if isinstance(slot.now.intent, e.ToolInvoked)
            and slot.now.result is None
            and not slot.now.is_settled
            and slot.now.accepted is None
        ]

    def to_reopen(self) -> list[str]:
        """Slots of definite failures that a retried run tries again: the last ones, after which nothing with an effect was begun.

        A failure that the node went on from is part of the past: another answer now would send what was ordered elsewhere.
        """
        failed = [
            name for name, slot in self.slots.items() if isinstance(slot.now.result, (e.ToolFailed, e.ModelFailed))
        ]
        begun = [name for name, slot in self.slots.items() if slot.has_effect]
        return [name for name in failed if not any(self._comes_after(other, name) for other in begun)]

    def _comes_after(self, one: str, other: str) -> bool:
        """Whether the node makes one call after the other. Calls of two branches of a gather come neither before nor after."""
        if one == other or not (_is_place(one) and _is_place(other)):
            return False
        for i, (a, b) in enumerate(zip(one.split("/"), other.split("/"), strict=False)):
            if a != b:
                parent = self.slots.get("/".join(one.split("/")[:i]))
                return (parent is None or parent.branches is None) and _number(a) > _number(b)
        return False

    def outstanding(self) -> list[str]:
        """Slots of calls whose effect may still come or may have come: accepted and not answered, or unknown and left so."""
        return [
            name
            for name, slot in self.slots.items()
            if slot.now.result is None
            and not slot.now.is_settled
            and (slot.now.accepted is not None or slot.now.unknown is not None)
        ]


def _is_place(slot: str) -> bool:
    """Whether a slot is a call's place, and not that of a stop for an operator."""
    return slot[:1].isdigit()


def _number(part: str) -> tuple[int, ...]:
    """A part of a slot as numbers; the first one has two, generation and visit."""
    return tuple(int(n) for n in part.split("."))


def _fold(slot: Slot, attempt: Attempt, event: e.Event) -> None:
    match event:
        case e.ToolInvoked():
            slot.asked(event.tool, event.requested_hash)
            slot.current = max(slot.current, event.attempt)
            attempt.intent, attempt.is_in_doubt = event, True
        case e.ModelRequested():
            slot.asked("model", event.request_hash)
            attempt.intent = event
        case e.ToolRead() | e.ToolFailed():
            slot.asked(event.tool, event.requested_hash)
            attempt.result, attempt.is_in_doubt = event, False
        case e.ValueRead():
            slot.asked(event.what, "")
            attempt.result = event
        case e.BranchesOpened():
            slot.asked(f"gather of {event.branches}", "")
            slot.branches = event
        case e.ToolReturned() | e.CallbackReceived() | e.ModelResponded() | e.ModelFailed():
            attempt.result, attempt.is_in_doubt = event, False
        case e.ToolAccepted():
            attempt.accepted, attempt.is_in_doubt = event, False
        case e.ToolNotDispatched():
            attempt.not_sents, attempt.is_in_doubt = event.n, False
        case e.ToolRedispatched():
            attempt.resends, attempt.is_in_doubt = event.n, True
        case e.ToolOutcomeUnknown():
            attempt.unknown = event
        case e.ToolReconciled():
            attempt.reconciled, attempt.is_in_doubt = event, False
            for key in [k for k, resolution in attempt.waits.items() if k[0] == "reconcile" and resolution is None]:
                attempt.waits[key] = event.verdict
            if event.verdict == "did_not":
                slot.current = max(slot.current, event.attempt + 1)
        case e.ApprovalRequested():
            slot.asked(event.tool, event.requested_hash)
            slot.gate, slot.decision = event, None
        case e.ApprovalDecided():
            slot.decision = event
        case _:
            _fold_wait(slot, attempt, event)


def _fold_wait(slot: Slot, attempt: Attempt, event: e.Event) -> None:
    match event:
        case e.WaitOpened():
            said = payload_of(event)
            if "call" in said:  # a wait may be all that is on record of a call: a sleep, or a read in trouble
                slot.asked(said["call"], said["hash"])
            attempt.waits[event.wait, event.n] = None
        case e.WaitResolved():
            attempt.waits[event.wait, event.n] = event.resolution
        case e.SignalTaken():
            attempt.result, attempt.waits["signal", 0] = event, "received"
        case e.InputAnswered():
            attempt.answers[event.n], attempt.waits["input", event.n] = event, "answered"
        case _:
            pass


def payload_of(event: e.Event | None) -> dict[str, Any]:
    """An event's payload as a mapping, empty where there is none."""
    return event.payload if event is not None and isinstance(event.payload, dict) else {}
