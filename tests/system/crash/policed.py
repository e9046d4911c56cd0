"""Judges calls under policies that changed meanwhile, by times and the journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

QUEUE = "legal"  # some gates of the crash-test agents ask it too, by their own rules
RULE = "The schedule asks."
# The proofs a rule may require, and how people approve: the proof that each manner shows.
PROOFS = ("", "fresh", "factor", "typed", "fresh typed", "factor typed")
MANNERS = {
    "whole": {"fresh", "factor", "typed"},
    "password": {"fresh", "typed"},
    "blank": {"fresh", "factor"},
    "stale": {"typed"},
    "key": {"typed"},
}
_LEAVES = ("ToolInvoked", "ToolRedispatched")
NOBODY: Mapping[str, Sequence[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Turn:
    """A policy change, certain from `done_at` on: calls of `tool` (empty: all) need an approval, or not."""

    begun_at: datetime
    done_at: datetime
    requires: bool
    tool: str
    proof: str = ""


def asked_by_rule(events: Iterable[dict[str, Any]]) -> set[str]:
    """Return the questions that no gate of the agent's own asked."""
    return {
        event["data"]["approval_id"]
        for event in events
        if event["kind"] == "ApprovalRequested" and _is_by_rule(event["data"])
    }


def _is_by_rule(data: dict[str, Any]) -> bool:
    return (data.get("queue"), data.get("rule")) == (QUEUE, RULE)


def judge_policed(
    events: Sequence[dict[str, Any]], turns: Sequence[Turn], said_how: Mapping[str, Sequence[str]] = NOBODY
) -> Iterable[str]:
    """Check that no call was sent without the approval required then. `said_how`: manners of approvals, by question."""
    tools = {(e["slot"], e["attempt"]): e["data"]["tool"] for e in events if e["kind"] == "ToolInvoked"}
    fields = {e["data"]["approval_id"]: e["data"]["queue"] for e in events if e["kind"] == "ApprovalRequested"}
    yes: dict[str, list[str]] = defaultdict(list)
    for n, event in enumerate(events):
        data = event["data"]
        if (
            event["kind"] == "ApprovalDecided"
            and data["verdict"] == "approved"
            and fields[data["approval_id"]] == QUEUE
        ):
            yes[event["slot"]].append(data["approval_id"])
        if event["kind"] not in _LEAVES:
            continue
        what = f"event {event['seq']}, {event['kind']} of {event['slot']}"
        then = _then(turns, datetime.fromisoformat(event["at"]))
        after = events[n + 1] if n + 1 < len(events) else {"kind": ""}
        answer = after["data"] if after["kind"] == "PolicyApplied" and after["slot"] == event["slot"] else None
        if answer is not None and answer["effect"] == "deny":
            yield f"{what}: it left, and a rule forbade it"
        if answer is not None and answer["effect"] == "require" and event["slot"] not in yes:
            yield f"{what}: it left without the yes that it says was demanded"
        if then is None or not then.requires or then.tool not in ("", tools.get((event["slot"], event["attempt"]))):
            continue
        if event["slot"] not in yes:
            yield f"{what}: it left without the yes that was demanded since {then.done_at.isoformat()}"
        elif not any(_shows(then.proof, manner) for id in yes[event["slot"]] for manner in said_how.get(id, ())):
            yield f"{what}: nobody's yes showed what is wanted since {then.done_at.isoformat()}: {then.proof or 'yes'}"
        if answer is None or answer["effect"] != "require":
            yield f"{what}: what the rules said of it is not on record"


def _shows(proof: str, manner: str) -> bool:
    return {*proof.split()} <= MANNERS[manner]


def _then(turns: Sequence[Turn], at: datetime) -> Turn | None:
    """Return the change in force then; None if there was none, or one was being made."""
    if any(turn.begun_at <= at < turn.done_at for turn in turns):
        return None
    return next((turn for turn in reversed(turns) if turn.done_at <= at), None)
