"""Verification of side effects: each event must have its ledger fact, and each fact its event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ledger import events as e
from ledger.actors import OUTSIDE
from ledger.models import LedgerEntry
from ledger.redacted import masked_key
from ledger.verification.runs import EventLine, ReadJournal, compared
from runs.engine.canonical import digest_of
from runs.engine.tape import payload_of
from runs.engine.tools import as_external_id
from runs.engine.undoing.plan import Effect, Plan
from runs.engine.undoing.visit import undo_summary

Of = tuple[str, str, int]
Became = e.EffectUndone | e.EffectLeft
# Events that may reveal an effect missing from the plan, or that concern an undoing call. These events are allowed,
# because a person decides about them.
_TELL = (e.CallbackReceived, e.CallbackArrivedLate, e.ToolAnsweredLate, e.ToolReturned, e.ToolReconciled)


class Undoing:
    """Compares a run's undo plan with the outcome for each effect."""

    def __init__(self, journal: ReadJournal) -> None:
        self.plan: Plan | None = None
        self.became: dict[Of, tuple[int, Became]] = {}
        self.by_slot: dict[str, Became] = {}
        self.told: set[tuple[str, int]] = set()
        self.end: tuple[int, e.Event] | None = None
        self.wrong: list[str] = []

    def see(self, line: EventLine) -> None:
        event = line.event
        match event:
            case e.UndoBegun():
                if self.plan is not None:
                    self.wrong.append(f"event {line.seq}, UndoBegun: the undo had already begun")
                self.plan = Plan.model_validate(event.payload)
                if len(self.plan.effects) != event.effects:
                    self.wrong.append(f"event {line.seq}, UndoBegun: its number of effects is wrong")
            case e.EffectUndone() | e.EffectLeft():
                self._take(line.seq, event)
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled() if self.plan is not None:
                self.end = line.seq, event
            case _ if isinstance(event, _TELL):
                self.told.add((event.slot or "", event.attempt))

    def _take(self, seq: int, event: Became) -> None:
        of = event.of_run, event.of_slot, event.of_attempt
        named = f"event {seq}, {event.KIND}"
        if self.plan is None:
            self.wrong.append(f"{named}: the undo had not begun")
        elif of in self.became:
            self.wrong.append(
                f"{named}: the outcome for {_key_of(of)} is already recorded in event {self.became[of][0]}"
            )
        elif not self._is_meant(of, event):
            self.wrong.append(f"{named}: {_key_of(of)} was not in the plan")
        self.became.setdefault(of, (seq, event))
        self.by_slot[event.slot or ""] = event

    def _is_meant(self, of: Of, event: Became) -> bool:
        run, slot, attempt = of
        planned = [x for x in self._planned() if (x.slot, x.attempt) == (slot, attempt)]
        # A child that was active then may have continued as another run since.
        if any(x.run == run or x.what == "child" for x in planned):
            return isinstance(event, e.EffectLeft) or any(x.what in ("undo", "child", "reopen") for x in planned)
        return isinstance(event, e.EffectLeft) and not run and (slot, attempt) in self.told

    def _planned(self) -> list[Effect]:
        return [] if self.plan is None else [x for x in self.plan.all() if x.what != "stays"]

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        if self.plan is None or self.end is None:
            return
        seq, end = self.end
        for effect in self._planned():
            of = effect.run, effect.slot, effect.attempt
            # an active child undoes its own effects, without an event
            if effect.what != "child" and of not in self.became:
                yield f"event {seq}, {end.KIND}: no outcome is recorded for {_key_of(of)}, which was to be undone"
        if payload_of(end).get("undo") != undo_summary(self.plan, self.by_slot):
            yield f"event {seq}, {end.KIND}: its summary of the undo differs from the recorded outcomes"


def _key_of(of: Of) -> str:
    run, slot, attempt = of
    return f"slot {slot}, attempt {attempt}" + (f", of run {run}" if run else "")


_FACTS: dict[type[e.Event], str] = {
    e.ToolInvoked: "pending",
    e.ToolReturned: "committed",
    e.CallbackReceived: "committed",
    e.CallbackArrivedLate: "committed",
    e.ToolFailed: "failed",
    e.ToolOutcomeUnknown: "unknown",
    e.ToolReconciled: "reconciled",
}


@dataclass(slots=True)
class _Expected:
    """The ledger fact that should follow from an event. A set in `columns` contains all valid values of a column."""

    seq: int
    kind: str
    slot: str | None
    attempt: int
    fact: str
    columns: dict[str, Any]


_OF_PAYLOADS = frozenset({"key", "external_id", "digest"})


class Effects:
    """Compares facts with events, in both directions."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.retried_by = ""
        self.intents: dict[tuple[str | None, int], tuple[e.ToolInvoked, str | None]] = {}
        self.expected: dict[tuple[str | None, int, str], list[_Expected]] = {}

    def see(self, line: EventLine) -> None:
        """Derive the fact of an event. Only reads and refused reads have no fact."""
        event = line.event
        if not isinstance(event, e.ToolReconciled):
            self.retried_by = event.by if isinstance(event, e.RunRetried) else ""
        if isinstance(event, e.ToolInvoked):
            self.intents[event.slot, event.attempt] = (event, payload_of(event).get("key"))
        if isinstance(event, e.EffectUndone) and not event.of_run:
            self._expect_undone(line, event)
        fact = _FACTS.get(type(event))
        intent, key = self.intents.get((event.slot, event.attempt), (None, None))
        if fact is None or intent is None or intent.replay_class == "pure":
            return
        if isinstance(event, (e.CallbackReceived, e.CallbackArrivedLate)):
            key = None  # recording a callback needs no key
        columns = {
            "tool": intent.tool,
            "replay_class": intent.replay_class,
            "key": {key, masked_key(key)},  # older versions stored the whole key
            "input_hash": intent.requested_hash,
            "actor": self._actor(line),
            "external_id": _external_ids(event),
            "digest": _digests(event),
        }
        expected = _Expected(line.seq, event.KIND, event.slot, event.attempt, fact, columns)
        self.expected.setdefault((event.slot, event.attempt, fact), []).append(expected)

    def _expect_undone(self, line: EventLine, event: e.EffectUndone) -> None:
        """Expect a fact about the undone effect instead of the call that undid it."""
        intent, _ = self.intents.get((event.of_slot, event.of_attempt), (None, None))
        columns = {
            "tool": event.tool,
            "replay_class": intent.replay_class if intent else None,
            "key": None,
            "input_hash": None,
            "actor": self._actor(line),
            "external_id": event.external_id,
            "digest": None,
        }
        place = event.of_slot, event.of_attempt, "compensated"
        self.expected.setdefault(place, []).append(_Expected(line.seq, event.KIND, *place, columns))

    def _actor(self, line: EventLine) -> str:
        match line.event:
            case e.CallbackReceived() | e.CallbackArrivedLate():
                return OUTSIDE.ref
            case e.ToolReconciled(by=by) if by != "hook":
                # A late result that a retry settled is recorded under the person who retried.
                return self.retried_by if self.retried_by and by.startswith("worker:") else by
            case _:
                return self.journal.holder(line)

    def problems(self) -> Iterator[str]:
        left = {key: list(expected) for key, expected in self.expected.items()}
        for row in self.journal.rows(LedgerEntry, "seq", "id", batch=500):
            what = f"ledger entry {row.id}, {row.fact} at slot {row.slot}"
            waiting = left.get((row.slot, row.attempt, row.fact))
            if not waiting:
                yield f"{what}, has no event"
                continue
            expected = waiting.pop(0)
            columns = expected.columns
            if self.journal.is_erased:  # these are compared with the payloads
                columns = {name: right for name, right in columns.items() if name not in _OF_PAYLOADS}
            yield from compared(what, row, columns)
            if row.seq < expected.seq or not self.journal.is_just_after(row.seq, row.at):
                yield f"{what}: it was not written with event {row.seq} at {row.at.isoformat()}"
        for missing in (each for waiting in left.values() for each in waiting):
            yield f"event {missing.seq}, {missing.kind}, has no ledger entry {missing.fact}"


def _external_ids(event: e.Event) -> Any:
    if isinstance(event, e.ToolReturned):
        return event.external_id
    result = None
    if isinstance(event, e.ToolReconciled):
        result = payload_of(event).get("result")
    elif isinstance(event, e.CallbackReceived):
        result = event.payload
    # Only the tool knows which member of the result is its external id, and the tool's version may not be installed
    # here.
    return {None, *map(as_external_id, result.values())} if isinstance(result, dict) else None


def _digests(event: e.Event) -> Any:
    match event:
        case e.ToolReturned():
            return digest_of(payload_of(event).get("result"))
        case e.ToolFailed():
            return digest_of(event.payload)
        case e.ToolReconciled(by="hook"):
            # If a hook is queried while a cancelled run is settled, the fact has no digest.
            return {None, digest_of(payload_of(event).get("result"))}
        case e.ToolReconciled(by=by, verdict=verdict):
            return digest_of(payload_of(event).get("result")) if by.startswith("worker:") else verdict
        case _:
            return None
