"""A fork's view of its origin: every effect after the point of the fork.

The list is copied into the fork's journal when the fork is made, so that later events of the origin don't change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ledger import events as e
from runs.engine.amending import arguments_of
from runs.engine.tape import Attempt, Slot, Tape, payload_of
from runs.engine.tools import ReplayClass, Tool

FORK, START_AGAIN = "fork", "start_again"
# A person's verdict on an effect in the list.
HAPPENED, UNKNOWN, DID_NOT = "happened", "unknown", "did_not"
COUNTS: Final = (HAPPENED, UNKNOWN, DID_NOT)
COMMITTED, OPEN, UNDONE = "committed", "open", "undone"
CHILD = "child"

Place = tuple[str, str, int]
# An event with its number and its time.
ForkRecord = tuple[int, str, e.Event]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One recorded effect of the origin.

    `outcome` is committed, undone, or open if unknown. If `has_result` is true, `result` can be reused for the same
    call. `counts_as` is a person's verdict, and `by` is that person. If `is_verified` is false, only a
    database row proves the effect, not the journal. `is_changed`: people changed the arguments before they were sent.
    """

    run: str
    slot: str
    attempt: int
    tool: str
    requested_hash: str
    executed_hash: str = ""
    at: str = ""
    outcome: str = COMMITTED
    external_id: str | None = None
    arguments: Any = None
    has_result: bool = False
    result: Any = None
    counts_as: str = ""
    by: str = ""
    is_verified: bool = True
    is_changed: bool = False

    def is_of(self, requested: str, executed: str) -> bool:
        """Return whether a call with these hashes is the call that had this effect.

        Changes by people are ignored, because the node repeats its own arguments.
        """
        if self.is_changed or not self.executed_hash:
            return self.requested_hash == requested
        return self.executed_hash == executed

    @property
    def place(self) -> Place:
        return self.run, self.slot, self.attempt

    def as_json(self) -> dict[str, Any]:
        """Return plain data for the record."""
        return asdict(self)


class Fork:
    """The fork's record of its origin."""

    def __init__(self, forked: e.RunForked) -> None:
        payload = payload_of(forked)
        self.told, self.state = forked, payload.get("state")
        self.effects = [Evidence(**each) for each in payload.get("effects", ())]
        self.taken: set[Place] = set()  # effects used in this visit, not journaled yet
        self.undone: set[Place] = set()  # effects undone since the fork was made

    def fences(self, tool: str) -> bool:
        return self.told.fences_all or any(x.tool == tool and x.counts_as != DID_NOT for x in self.effects)

    def is_beyond(self, tools: Iterable[str]) -> bool:
        """Return whether the origin used a tool that isn't among these.

        If so, repeats of that tool's calls can't be recognized.
        """
        known = set(tools)
        return any(
            x.tool not in known and not x.tool.startswith(f"{CHILD}:") and x.counts_as != DID_NOT for x in self.effects
        )

    def of(self, tool: str) -> list[Evidence]:
        """Return the origin's effects with this tool. Those undone since the fork was made are marked as undone."""
        found = [x for x in self.effects if x.tool == tool and x.counts_as != DID_NOT]
        return [_undone(x) if x.place in self.undone else x for x in found]

    def same(self, tool: str, requested: str, executed: str, slot: str, taken: set[Place]) -> Evidence | None:
        """Return an effect of the same call with a reusable result; None if there is none.

        An effect at the same place is preferred.
        """
        fitting = [x for x in self.of(tool) if x.has_result and x.place not in taken and x.is_of(requested, executed)]
        return next((x for x in fitting if self._is_at(x.slot, slot)), next(iter(fitting), None))

    def _is_at(self, there: str, here: str) -> bool:
        """Return whether two slots are the same place, converting between the visit numbers of origin and fork."""
        (cut, path), (ours, our_path) = _parts(there), _parts(here)
        return path == our_path and cut - max(0, self.told.visit - 1) == ours


def _parts(slot: str) -> tuple[int, str]:
    cut, _, path = slot.partition("/")
    return int(cut.partition(".")[2] or 0), path


# --- from a journal ---------------------------------------------------------------------------------------------------


ToolOf = Callable[[str], Tool | None]


def evidence_of(run: str, forks: Iterable[ForkRecord], tool_of: ToolOf) -> list[Evidence]:
    """Return every effect in a run's events. `tool_of` finds the tools that interpret callbacks and receipts."""
    every = list(forks)
    tape, at = Tape(event for *_, event in every), _times(every)
    back = Undoing()
    for event in (event for *_, event in every):
        back.see(event)
    found = (
        replace(effect, at=at.get((name, number), ""))
        for name, slot in tape.slots.items()
        for number, attempt in sorted(slot.attempts.items())
        for effect in _effect(run, name, slot, number, attempt, tool_of)
    )
    return [_as_it_is_now(effect, back) for effect in found]


def _as_it_is_now(found: Evidence, back: Undoing) -> Evidence:
    place = found.slot, found.attempt
    if place in back.undone:
        return _undone(found)
    return replace(_undone(found), outcome=OPEN) if place in back.all else found


def _undone(found: Evidence) -> Evidence:
    return replace(found, outcome=UNDONE, has_result=False, result=None)


class Undoing:
    """Effects that a run has undone, by slot and attempt.

    `undone` are those that certainly were undone; `all` includes those that may be or will be. While `is_begun` is
    true, undoing was requested, but the effects to undo aren't known yet. An effect that a person kept is removed from
    `all`, but a child with kept effects isn't.
    """

    def __init__(self) -> None:
        self.undone: set[tuple[str, int]] = set()
        self.all: set[tuple[str, int]] = set()
        self.is_begun = False

    def see(self, event: e.Event) -> None:
        """Process an event. Events must come in journal order."""
        match event:
            case e.UndoAsked():
                self.is_begun = True
            case e.UndoBegun():
                self.is_begun = False
                planned = payload_of(event).get("effects", ())  # in the same form as `undoing.plan.Effect`
                self.all |= {(x["slot"], x["attempt"]) for x in planned if x["what"] != "stays"}
            case e.EffectUndone():
                self.undone.add((event.of_slot, event.of_attempt))
                self.all.add((event.of_slot, event.of_attempt))
            case e.EffectLeft(of_run=""):
                self.all.discard((event.of_slot, event.of_attempt))
            case _:
                pass


def _times(forks: Iterable[ForkRecord]) -> dict[tuple[str | None, int], str]:
    began = (e.ToolInvoked, e.ChildStarted)
    return {(event.slot, event.attempt): at for _, at, event in forks if isinstance(event, began)}


def _effect(run: str, name: str, slot: Slot, number: int, attempt: Attempt, tool_of: ToolOf) -> Iterator[Evidence]:
    intent = attempt.intent
    if isinstance(intent, e.ChildStarted):
        yield _child(run, name, number, intent, attempt)
    if not isinstance(intent, e.ToolInvoked) or intent.replay_class == ReplayClass.PURE or not _may_have_been(attempt):
        return
    found = Evidence(
        run=run,
        slot=name,
        attempt=number,
        tool=intent.tool,
        requested_hash=intent.requested_hash,
        executed_hash=intent.executed_hash,
        arguments=payload_of(intent).get("arguments"),
        is_changed=arguments_of(slot) is not None,
        outcome=COMMITTED if attempt.has_happened else OPEN,
    )
    yield _with_result(found, attempt, tool_of(intent.tool))


def _may_have_been(attempt: Attempt) -> bool:
    """Return whether the attempt may have had its effect: either nothing rules that out, or a late result says so."""
    if attempt.testimony is not None or attempt.is_called_back_late or attempt.is_contradicted:
        return True
    if attempt.reconciled is not None and attempt.reconciled.verdict == DID_NOT:
        return False
    if attempt.outcome is not None and attempt.is_refused:
        return False
    # A try is proved unsent only if that is the last event about it: a later try may have been sent, and a hook or a
    # person may have found that it was.
    is_told_of = (attempt.result, attempt.accepted, attempt.reconciled, attempt.unknown) != (None, None, None, None)
    return not attempt.not_sents or attempt.is_in_doubt or is_told_of


def _with_result(found: Evidence, attempt: Attempt, tool: Tool | None) -> Evidence:
    outcome, payload = attempt.outcome, payload_of(attempt.outcome)
    if isinstance(outcome, (e.ToolReturned, e.ToolReconciled)) and "result" in payload:
        external_id = outcome.external_id if isinstance(outcome, e.ToolReturned) else None
        return replace(found, has_result=True, result=payload["result"], external_id=external_id)
    if tool is None or not isinstance(outcome, (e.ToolReconciled, e.CallbackReceived)):
        return found
    try:
        args = tool.input.model_validate(found.arguments)
        if isinstance(outcome, e.CallbackReceived):
            given = tool.output_from_callback(payload_of(attempt.accepted).get("receipt"), outcome.payload)
        else:
            given = tool.output_from_receipt(args, payload.get("receipt"))
    except ValueError:  # it happened, but its result can't be reused
        return found
    result = given.model_dump(mode="json")
    return replace(found, has_result=True, result=result, external_id=tool.external_id_of(result))


def _child(run: str, name: str, number: int, intent: e.ChildStarted, attempt: Attempt) -> Evidence:
    """Return the evidence for a child run. One entry represents all effects of the child."""
    is_done = isinstance(attempt.result, e.ChildEnded) and attempt.result.state == "completed"
    return Evidence(
        run=run,
        slot=name,
        attempt=number,
        tool=child_tool(intent.agent),
        requested_hash=intent.requested_hash,
        arguments=payload_of(intent).get("arguments"),
        external_id=intent.child,
        outcome=COMMITTED if is_done else OPEN,
        has_result=is_done,
        result=payload_of(attempt.result).get("output") if is_done else None,
    )


def child_tool(agent: str) -> str:
    return f"{CHILD}:{agent.partition('@')[0]}"
