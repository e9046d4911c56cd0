"""A run's effects, call by call, as a projection of the journal without payloads (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ledger.api.present import masked
from ledger.redacted import masked_key
from runs.engine.gating.fields import NO_TOOL
from runs.engine.tape import CALLED_BACK
from runs.story.findings import Findings
from runs.story.lines import EventLine, Fact


@dataclass(slots=True)
class Effect:
    """A logical call with an effect. `status` selects its template.

    held, cleared, rejected, expired (at its gate) · sent, accepted, not_sent (in progress) · committed, failed,
    unknown, settled_not · undone. `open` adds content from the payloads of the effect's events. `touched` is the last
    event that changed the effect, and `late` is a late result about attempt `told_of`. `contradicted` is the recorded
    outcome that the late result contradicts, until a person has answered it (see `findings`).
    """

    slot: str
    tool: str
    status: str
    seq: int
    opened_at: datetime
    replay_class: str = ""
    arguments: Any = None
    key: str | None = None
    external_id: str | None = None
    result: Any = None
    error: str = ""
    trace: str = ""
    error_code: str = ""
    changed_at: datetime | None = None
    sent_at: datetime | None = None
    attempts: int = 0
    sends: int = 0
    not_sent: int = 0
    interrupted: int = 0
    verdict: str = ""
    settled_by: str = ""
    approval_id: str = ""
    queue: str = ""
    plan_hash: str = ""
    is_sender_done: bool = False
    is_sender_doubtful: bool = False
    """True if a worker that may have sent this attempt was given up without proof that it ended."""
    ended_pid: int = 0
    """Process id of the worker that last sent this attempt, if it provably ended before an outcome was recorded."""
    late: str = ""
    told_of: int = 0
    contradicted: str = ""
    testimony: Any = None
    touched: int = 0
    requests: tuple[int, ...] = ()
    answered: int = 0
    troubled: int = 0
    traced: int = 0
    witness: int = 0

    @property
    def next_attempt(self) -> int:
        return self.attempts + 1

    @property
    def is_of_earlier(self) -> bool:
        """Return whether the late result is about an attempt before the newest one."""
        return 0 < self.told_of < self.attempts

    @property
    def is_keyed(self) -> bool:
        return self.replay_class == "idempotent_with_key"

    @property
    def face(self) -> tuple[int, int]:
        """Return a key that changes with the effect's HTML."""
        return self.seq, self.touched

    @property
    def events(self) -> tuple[int, ...]:
        """Return the numbers of the events whose payloads describe the effect; 0 for missing ones."""
        return (*self.requests, self.answered, self.troubled, self.traced, self.witness)

    def open(self, lines: Mapping[int, EventLine]) -> None:
        """Add the parts that only the payloads contain."""
        for line in (lines[seq] for seq in self.requests if seq in lines):
            if line.is_hidden:
                self.arguments = line.payload
                self.key = str(line.payload) if self.is_keyed else None
            elif line.kind == "ApprovalRequested":
                self.arguments = line.get("arguments")
            else:
                self.arguments = masked(line.get("arguments", self.arguments))
                self.key = masked_key(line.get("key") or line.get("idempotency_key"))
        if answer := lines.get(self.answered):
            is_settled = answer.kind == "ToolReconciled"
            self.result = (
                answer.get("result", answer.get("receipt"))
                if is_settled
                else masked(answer.get("result", answer.payload))
            )
        if witness := lines.get(self.witness):
            self.testimony = masked(witness.get("result", witness.payload))
        trouble = lines.get(self.troubled)
        self.error = "" if trouble is None else str(trouble.payload) if trouble.is_hidden else message_of(trouble)
        self.trace = trace_of(lines[self.traced]) if self.traced in lines else ""

    @property
    def took(self) -> float | None:
        """Return the seconds from the permission to send until the last event about the effect."""
        if self.sent_at is None or self.changed_at is None:
            return None
        return (self.changed_at - self.sent_at).total_seconds()


# The causes of a WorkerLost after which the worker's process has ended; compare `services.settling.senders`.
_PROVEN = ("proof", "operator")


@dataclass
class Effects:
    """A run's effects by slot, in order of first appearance."""

    by_slot: dict[str, Effect] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)
    resent: set[str] = field(default_factory=set)
    """Slots of the calls that were sent again after a worker died."""
    _held: dict[str, str] = field(default_factory=dict)
    _sent: dict[int, Effect] = field(default_factory=dict)
    _findings: Findings = field(default_factory=Findings)

    def all(self) -> list[Effect]:
        return list(self.by_slot.values())

    def count(self, *statuses: str) -> int:
        return sum(self.tally[status] for status in statuses)

    def at(self, line: Fact) -> Effect | None:
        return self.by_slot.get(line.slot or "")

    def turn(self, effect: Effect, status: str, line: Fact) -> None:
        """Set an effect's status according to an event."""
        self.tally[effect.status] -= 1
        self.tally[status] += 1
        effect.status, effect.changed_at, effect.touched = status, line.at, line.seq
        if status == "sent":
            self._sent[id(effect)] = effect
        else:
            self._sent.pop(id(effect), None)

    def note(self, effect: Effect, line: Fact) -> str:
        """Record a finding or a late result. Returns the recorded outcome that this contradicts."""
        belies = self._findings.take(line)
        effect.contradicted = self._findings.contradicted(effect.slot)
        return belies

    def lost(self, line: Fact) -> None:
        """Record that a worker's death interrupted the calls in progress."""
        pid = int(line.clear.get("pid") or 0) if line.clear.get("cause", "proof") in _PROVEN else 0
        for effect in self._sent.values():
            effect.interrupted, effect.touched = effect.interrupted + 1, line.seq
            effect.ended_pid, effect.is_sender_doubtful = pid, effect.is_sender_doubtful or not pid


def _gate(effects: Effects, line: Fact) -> None:
    if line.clear.get("tool") in (None, "", NO_TOOL):
        return
    earlier = effects.by_slot.get(effects._held.get(line.slot or "", ""))
    # This is another gate of the same call, for which one approval isn't enough.
    if earlier is not None and earlier.status == "cleared":
        del effects.by_slot[effects._held[line.slot or ""]]
        effects.tally["cleared"] -= 1
    slot = f"gate {line.slot} {line.attempt} {line.clear['approval_id']}"
    effects._held[line.slot or ""] = slot
    if slot in effects.by_slot:
        effects.tally[effects.by_slot[slot].status] -= 1
    effects.tally["held"] += 1
    effects.by_slot[slot] = Effect(
        slot=line.slot or "",
        tool=line.clear["tool"],
        status="held",
        seq=line.seq,
        opened_at=line.at,
        approval_id=line.clear["approval_id"],
        queue=line.clear["queue"],
        plan_hash=line.clear["plan_hash"],
        changed_at=line.at,
        touched=line.seq,
        requests=(line.seq,),
    )


def _decision(effects: Effects, line: Fact) -> None:
    held = effects.by_slot.get(effects._held.get(line.slot or "", ""))
    if held is None or held.status != "held":
        return
    held.verdict, held.settled_by = line.clear["verdict"], line.clear["by"]
    effects.turn(held, _AT_ITS_GATE.get(line.clear["verdict"], "rejected"), line)


_AT_ITS_GATE = {"approve": "cleared", "approved": "cleared", "expired": "expired"}


def _amended(effects: Effects, line: Fact) -> None:
    """Remove a held call that is requested again with changed arguments.
    Since a person changed the arguments, both are one effect."""
    held = effects.by_slot.pop(effects._held.pop(line.slot or "", ""), None)
    if held is not None:
        effects.tally[held.status] -= 1


def _invoked(effects: Effects, line: Fact) -> None:
    slot = line.slot or ""
    effect = effects.by_slot.get(slot)
    if effect is None:
        gate = effects._held.get(line.clear.get("grant") or slot, "")
        held = effects.by_slot.get(gate)
        if held is not None and held.status == "cleared" and held.tool == line.clear["tool"]:
            effect = effects.by_slot.pop(gate)
        else:
            effect = Effect(slot=slot, tool=line.clear["tool"], status="", seq=line.seq, opened_at=line.at)
            effects.tally[""] += 1
        effects.by_slot[slot] = effect
    effect.slot, effect.seq = slot, line.seq
    effects.turn(effect, "sent", line)
    effect.is_sender_done = effect.is_sender_doubtful = False
    effect.ended_pid = 0
    effect.replay_class = line.clear["replay_class"]
    effect.requests += (line.seq,)
    effect.attempts, effect.sends = effect.attempts + 1, effect.sends + 1
    effect.sent_at = effect.sent_at or line.at


def _accepted(effects: Effects, line: Fact) -> None:
    effect = effects.at(line)
    if effect is not None:
        effects.turn(effect, "accepted", line)
        effect.is_sender_done = not effect.is_sender_doubtful


def _resent(effects: Effects, line: Fact) -> None:
    effect = effects.at(line)
    if effect is not None:
        effects.turn(effect, "sent", line)
        effect.is_sender_done, effect.ended_pid = False, 0
        effect.sends += 1
        if effect.interrupted:
            effects.resent.add(effect.slot)


def _not_sent(effects: Effects, line: Fact) -> None:
    effect = effects.at(line)
    if effect is not None:
        effects.turn(effect, "not_sent", line)
        effect.not_sent, effect.troubled = effect.not_sent + 1, line.seq


def _returned(effects: Effects, line: Fact) -> None:
    effect = effects.at(line)
    if effect is not None:
        effects.turn(effect, "committed", line)
        effects.note(effect, line)
        effect.troubled = effect.traced = 0
        effect.external_id = line.clear.get("external_id") or effect.external_id
        effect.answered = line.seq


def _failed(effects: Effects, line: Fact) -> None:
    effect = effects.at(line)
    if effect is not None:
        effects.turn(effect, "failed", line)
        effect.is_sender_done = not effect.is_sender_doubtful
        effects.note(effect, line)
        effect.troubled = effect.traced = line.seq
        effect.error_code = line.clear.get("code", "")


def _unknown(effects: Effects, line: Fact) -> None:
    effect = effects.at(line)
    if effect is not None:
        effects.turn(effect, "unknown", line)
        effect.troubled = effect.traced = line.seq
        has_ended = effect.ended_pid != 0 and not effect.is_sender_doubtful
        effect.is_sender_done = has_ended or bool(line.clear.get("is_sender_done"))


# The status of a call after a verdict. "Fail the run" doesn't change it.
_SETTLED = {"happened": "committed", "did_not": "settled_not"}


def _reconciled(effects: Effects, line: Fact) -> None:
    effect = effects.at(line)
    if effect is None:
        return
    effect.verdict, effect.settled_by = line.clear["verdict"], line.clear["by"]
    effects.turn(effect, _SETTLED.get(effect.verdict, "unknown"), line)
    effects.note(effect, line)
    if effect.verdict == "happened":
        effect.answered = line.seq


def _undone(effects: Effects, line: Fact) -> None:
    """Mark as undone the effect that the call at this slot undid. The effect keeps its own time."""
    effect = None if line.clear["of_run"] else effects.by_slot.get(line.clear["of_slot"])
    if effect is not None:
        since = effect.changed_at
        effects.turn(effect, "undone", line)
        effect.changed_at = since


def _note_late_result(effects: Effects, line: Fact) -> None:
    """Record a late result from the worker or the upstream system.
    A contradiction is kept until a person has answered it."""
    effect = effects.at(line)
    if effect is not None:
        belies = effects.note(effect, line)
        effect.touched = line.seq
        if belies or not effect.contradicted:
            effect.late, effect.witness = line.clear.get("outcome", CALLED_BACK), line.seq
            effect.told_of = line.attempt + 1


def _mark_unknown_again(effects: Effects, line: Fact) -> None:
    """Mark a settled call as unknown again when a person is asked about it."""
    effect = effects.at(line)
    if line.clear["wait"] == "reconcile" and effect is not None and effect.status in ("settled_not", "failed"):
        effects.turn(effect, "unknown", line)


def _lost(effects: Effects, line: Fact) -> None:
    effects.lost(line)


def message_of(line: EventLine) -> str:
    """Return an event's error message; for a traceback, its last line."""
    text = _text_of(line)
    return text.strip().rpartition("\n")[2].strip() if text.startswith(_TRACEBACK) else text


def trace_of(line: EventLine) -> str:
    """Return an event's traceback; "" if it has none."""
    text = line.get("traceback") or _text_of(line)
    return text if isinstance(text, str) and (line.get("traceback") or text.startswith(_TRACEBACK)) else ""


def _text_of(line: EventLine) -> str:
    for key in ("message", "error", "reason", "why", "detail", "problem"):
        value = line.get(key)
        if isinstance(value, str) and value:
            return value
    return line.payload if isinstance(line.payload, str) else ""


_TRACEBACK = "Traceback (most recent call last)"
STEPS: dict[str, Callable[[Effects, Fact], None]] = {
    "ApprovalRequested": _gate,
    "ApprovalDecided": _decision,
    "PlanAmended": _amended,
    "ToolInvoked": _invoked,
    "ToolAccepted": _accepted,
    "ToolRedispatched": _resent,
    "ToolNotDispatched": _not_sent,
    "ToolReturned": _returned,
    "CallbackReceived": _returned,
    "ToolFailed": _failed,
    "ToolOutcomeUnknown": _unknown,
    "ToolReconciled": _reconciled,
    "ToolAnsweredLate": _note_late_result,
    "CallbackArrivedLate": _note_late_result,
    "WaitOpened": _mark_unknown_again,
    "WorkerLost": _lost,
    "EffectUndone": _undone,
}
