"""What the run did to the outside world, call by call: held, sent, committed, refused, unknown. A pure fold over the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ledger.present import masked
from runs.story.lines import Line


@dataclass
class Effect:
    """One logical call with an effect. `status` names the template that words it.

    held, cleared, rejected (at its gate) · sent, accepted, not_sent (under way) · committed, failed, unknown, settled_not.
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
    late: str = ""
    belied: str = ""

    @property
    def is_under_way(self) -> bool:
        return self.status in ("sent", "accepted", "not_sent")

    @property
    def next_attempt(self) -> int:
        return self.attempts + 1

    @property
    def is_keyed(self) -> bool:
        return self.replay_class == "idempotent_with_key"

    @property
    def took(self) -> float | None:
        """Seconds from the first byte's permission to the last word about it."""
        if self.sent_at is None or self.changed_at is None:
            return None
        return (self.changed_at - self.sent_at).total_seconds()


@dataclass
class Effects:
    """Every effect of a run by slot, in the order in which they were first spoken of."""

    by_slot: dict[str, Effect] = field(default_factory=dict)
    _held: dict[str, str] = field(default_factory=dict)

    def all(self) -> list[Effect]:
        return list(self.by_slot.values())

    def count(self, *statuses: str) -> int:
        return sum(effect.status in statuses for effect in self.by_slot.values())

    def take(self, line: Line) -> None:
        """Fold one event in. Kinds that say nothing about effects have no entry and change nothing."""
        step = _STEPS.get(line.kind)
        if step is not None:
            step(self, line)

    def at(self, line: Line) -> Effect | None:
        return self.by_slot.get(line.slot or "")


def _gate(effects: Effects, line: Line) -> None:
    if not line.clear.get("tool"):
        return
    slot = f"gate {line.slot} {line.attempt} {line.clear['approval_id']}"
    effects._held[line.slot or ""] = slot
    effects.by_slot[slot] = Effect(
        slot=line.slot or "",
        tool=line.clear["tool"],
        status="held",
        seq=line.seq,
        opened_at=line.at,
        arguments=line.get("arguments"),
        approval_id=line.clear["approval_id"],
        queue=line.clear["queue"],
        plan_hash=line.clear["plan_hash"],
        changed_at=line.at,
    )


def _decision(effects: Effects, line: Line) -> None:
    held = effects.by_slot.get(effects._held.get(line.slot or "", ""))
    if held is None or held.status != "held":
        return
    held.verdict, held.settled_by, held.changed_at = line.clear["verdict"], line.clear["by"], line.at
    held.status = "cleared" if line.clear["verdict"] in ("approve", "approved") else "rejected"


def _invoked(effects: Effects, line: Line) -> None:
    slot = line.slot or ""
    effect = effects.by_slot.get(slot)
    if effect is None:
        gate = effects._held.get(line.clear.get("grant") or slot, "")
        held = effects.by_slot.get(gate)
        if held is not None and held.status == "cleared" and held.tool == line.clear["tool"]:
            effect = effects.by_slot.pop(gate)
        else:
            effect = Effect(slot=slot, tool=line.clear["tool"], status="", seq=line.seq, opened_at=line.at)
        effects.by_slot[slot] = effect
    effect.slot, effect.status, effect.seq = slot, "sent", line.seq
    effect.replay_class = line.clear["replay_class"]
    effect.arguments = masked(line.get("arguments", effect.arguments))
    effect.key = line.get("key") or line.get("idempotency_key")
    effect.attempts, effect.sends = effect.attempts + 1, effect.sends + 1
    effect.sent_at, effect.changed_at = effect.sent_at or line.at, line.at


def _set(status: str) -> Callable[[Effects, Line], None]:
    def step(effects: Effects, line: Line) -> None:
        effect = effects.at(line)
        if effect is not None:
            effect.status, effect.changed_at = status, line.at

    return step


def _resent(effects: Effects, line: Line) -> None:
    effect = effects.at(line)
    if effect is not None:
        effect.status, effect.changed_at, effect.sends = "sent", line.at, effect.sends + 1


def _not_sent(effects: Effects, line: Line) -> None:
    effect = effects.at(line)
    if effect is not None:
        effect.status, effect.changed_at, effect.not_sent = "not_sent", line.at, effect.not_sent + 1
        effect.error = message_of(line)


def _returned(effects: Effects, line: Line) -> None:
    effect = effects.at(line)
    if effect is not None:
        effect.status, effect.changed_at, effect.error, effect.trace = "committed", line.at, "", ""
        effect.external_id = line.clear.get("external_id") or effect.external_id
        effect.result = masked(line.get("result", line.payload))


def _failed(effects: Effects, line: Line) -> None:
    effect = effects.at(line)
    if effect is not None:
        effect.status, effect.changed_at = "failed", line.at
        effect.trace = trace_of(line)
        effect.error, effect.error_code = message_of(line), line.clear.get("code", "")


def _unknown(effects: Effects, line: Line) -> None:
    effect = effects.at(line)
    if effect is not None:
        effect.status, effect.changed_at, effect.error = "unknown", line.at, message_of(line)
        effect.trace = trace_of(line)
        effect.is_sender_done = bool(line.clear.get("is_sender_done"))


def _reconciled(effects: Effects, line: Line) -> None:
    effect = effects.at(line)
    if effect is None:
        return
    effect.verdict, effect.settled_by, effect.changed_at = line.clear["verdict"], line.clear["by"], line.at
    effect.status = {"happened": "committed", "did_not": "settled_not"}.get(effect.verdict, "failed")
    if effect.verdict == "happened":
        effect.result = line.get("result", line.get("receipt"))


def _answered_late(effects: Effects, line: Line) -> None:
    """What the worker that sent the call said when the outcome was settled already; `belied` is the verdict it contradicts."""
    effect = effects.at(line)
    if effect is not None:
        effect.late, effect.belied = line.clear["outcome"], line.clear["contradicts"] or effect.belied


def _lost(effects: Effects, line: Line) -> None:
    for effect in effects.by_slot.values():
        if effect.status == "sent":
            effect.interrupted += 1


def message_of(line: Line) -> str:
    """What an event says went wrong, in its own words; of a traceback its last line, which is the error itself."""
    said = _said(line)
    return said.strip().rpartition("\n")[2].strip() if said.startswith(_TRACEBACK) else said


def trace_of(line: Line) -> str:
    """The traceback that an event carries, under whatever name; empty if none."""
    said = line.get("traceback") or _said(line)
    return said if isinstance(said, str) and (line.get("traceback") or said.startswith(_TRACEBACK)) else ""


def _said(line: Line) -> str:
    for key in ("message", "error", "reason", "why", "detail"):
        value = line.get(key)
        if isinstance(value, str) and value:
            return value
    return line.payload if isinstance(line.payload, str) else ""


_TRACEBACK = "Traceback (most recent call last)"
_STEPS: dict[str, Callable[[Effects, Line], None]] = {
    "ApprovalRequested": _gate,
    "ApprovalDecided": _decision,
    "ToolInvoked": _invoked,
    "ToolAccepted": _set("accepted"),
    "ToolRedispatched": _resent,
    "ToolNotDispatched": _not_sent,
    "ToolReturned": _returned,
    "CallbackReceived": _returned,
    "ToolFailed": _failed,
    "ToolOutcomeUnknown": _unknown,
    "ToolReconciled": _reconciled,
    "ToolAnsweredLate": _answered_late,
    "WorkerLost": _lost,
}
