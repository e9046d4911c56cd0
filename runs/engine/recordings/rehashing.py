"""A record's keyed digests under another key: those who replay a file have its installation's key as little as they
should."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ledger import events as e
from runs.engine.canonical import Hasher
from runs.engine.tape import payload_of


class Remembering:
    """A hasher that knows what it made a digest of."""

    def __init__(self, hasher: Hasher) -> None:
        self._hasher = hasher
        self._known: dict[str, Any] = {}

    def __call__(self, value: Any) -> str:
        digest = self._hasher(value)
        self._known[digest] = value
        return digest

    def of(self, digest: str) -> dict[str, Any]:
        """What a digest is of; empty where that is unknown, or no mapping."""
        value = self._known.get(digest)
        return value if isinstance(value, dict) else {}


def rehashed(events: Sequence[e.Event], hasher: Hasher) -> list[e.Event]:
    """The events of a visit, with digests that this hasher makes of what is on record; those of what isn't stay."""
    plans: dict[str, str] = {}
    asked: dict[str, str] = {}
    return [_anew(event, hasher, plans, asked) for event in events]


def _anew(event: e.Event, hasher: Hasher, plans: dict[str, str], first: dict[str, str]) -> e.Event:
    """`first` has what each slot's first question asked for: what people made of it later is what they say."""
    payload = payload_of(event)
    match event:
        case e.ApprovalRequested():
            plans[event.plan_hash] = hasher(payload)
            asked = hasher({"tool": event.tool, "arguments": payload.get("arguments")})
            asked = first.setdefault(event.slot or "", asked)
            return replace(event, plan_hash=plans[event.plan_hash], requested_hash=asked)
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
