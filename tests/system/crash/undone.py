"""Judges undo: each effect once, the last first, or a person left it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.system.crash.checker import Expected, Facts, Kind

AGENT, REGRETTER, GIVER = "crash-undoer", "crash-regretter", "crash-giver"
_ENDED_BADLY = ("failed", "cancelled")
OWN_END = "undone"  # the code that they fail with


def undoes(facts: Facts) -> bool:
    return _agent(facts) in (AGENT, REGRETTER, GIVER)


def is_reopened(facts: Facts) -> bool:
    """Return whether it had completed before it undid its effects."""
    kinds = [event["kind"] for event in facts.events]
    return "RunCompleted" in kinds and "UndoAsked" in kinds[kinds.index("RunCompleted") :]


def _agent(facts: Facts) -> str:
    return str(facts.events[0]["data"].get("agent", "")) if facts.events else ""


def expected_of_undoer(facts: Facts, theirs: Expected) -> Expected:
    """Return what such a child does: all of it at its own end, less where something broke it before."""
    expected = _expected_of(facts, theirs)
    error = None if is_reopened(facts) else facts.run.get("error")
    is_broken = facts.run["state"] == "failed" and error not in (None, OWN_END)
    return replace(expected, state="completed", may_be_left=True) if is_broken else expected


def _expected_of(facts: Facts, theirs: Expected) -> Expected:
    late = theirs.may_send_late
    if _agent(facts) == REGRETTER:
        return Expected({"erp.create_vendor": 2}, state="failed", may_be_cancelled=True, may_send_late=late, children=1)
    if _agent(facts) == GIVER:
        # Its starter surely fails or was cancelled, so its effects can't stand. If a cancel ended it earlier, it undid
        # less.
        return Expected(
            {"erp.create_vendor": 4},
            gates=1,
            state="cancelled" if is_reopened(facts) else "completed",
            may_be_cancelled=not is_reopened(facts),
            denied={"refunded": "erp.create_vendor"},
            may_send_late=late,
        )
    tools = {event["data"].get("tool") for event in facts.events if event["kind"] == "ToolInvoked"}
    mails = {"email.mailed": 1, "email.unmailed": 1} if "mailed" in tools else {}
    return Expected(
        {"erp.create_vendor": 4, **mails},
        gates=1,
        state="failed",
        may_be_cancelled=True,
        denied={"refunded": "erp.create_vendor"},
        may_send_late=theirs.may_send_late,
    )


def judge_undone(facts: Facts, *, is_wanted: bool = False) -> Iterable[tuple[Kind, str]]:
    """Find what is wrong with a run's undo. `is_wanted`: cancels here want everything undone."""
    intents = {_call(e): e["seq"] for e in facts.events if e["kind"] in ("ToolInvoked", "ChildStarted")}
    children = {_call(event) for event in facts.events if event["kind"] == "ChildStarted"}
    registered = [_call(event) for event in facts.events if event["kind"] == "UndoRegistered"]
    undone = [_of(event) for event in facts.events if event["kind"] == "EffectUndone"]
    left = [_of(event) for event in facts.events if event["kind"] == "EffectLeft"]
    for call, times in Counter(undone).items():
        if times > 1:
            yield "duplicate", f"{call} was undone {times} times"
        if call not in children and (call not in registered or call not in _happened(facts)):
            yield "broken", f"{call} was undone, and never happened or can't be undone"
    ours = Counter(call for call in undone if call not in children)  # a child's are in its own ledger
    if Counter(_call(entry) for entry in facts.ledger if entry["fact"] == "compensated") != ours:
        yield "broken", "what the ledger says was compensated is not what the journal says was undone"
    order = [intents.get(call, 0) for call in undone]
    if order != sorted(order, reverse=True):
        yield "broken", f"undone in the order {undone}, which is not the last first"
    for event in facts.events:
        if event["kind"] == "EffectUndone" and (event["slot"], "result") not in _done(facts):
            yield "broken", f"event {event['seq']} says undone, and the call at {event['slot']} has no result"
    begun = [event["seq"] for event in facts.events if event["kind"] == "UndoBegun"]
    if len(begun) > 1:
        yield "duplicate", f"undoing was begun {len(begun)} times"
    if _agent(facts) == GIVER and facts.run["state"] == "completed":
        yield "lost", "its parent undid its effects, and it was not reopened"
    if facts.run["state"] in _ENDED_BADLY and (begun or is_wanted or facts.run["state"] == "failed"):
        for call in registered:
            if call in _happened(facts) and call not in (*undone, *left):
                yield "lost", f"{call} happened, and was neither undone nor left by anybody"


def _done(facts: Facts) -> set[tuple[str, str]]:
    found = {
        (event["slot"], "result") for event in facts.events if event["kind"] in ("ToolReturned", "CallbackReceived")
    }
    return found | {
        (event["slot"], "result")
        for event in facts.events
        if (event["kind"] == "ToolReconciled" and event["data"]["verdict"] == "happened")
        or (event["kind"] == "ChildEnded" and event["data"]["state"] != "completed")  # it undid its own effects
    }


def _happened(facts: Facts) -> list[tuple[str, int]]:
    return [
        _call(event)
        for event in facts.events
        if event["kind"] in ("ToolReturned", "CallbackReceived")
        or (event["kind"] == "ToolReconciled" and event["data"]["verdict"] == "happened")
    ]


def _call(row: dict[str, Any]) -> tuple[str, int]:
    return row["slot"], row["attempt"]


def _of(event: dict[str, Any]) -> tuple[str, int]:
    return event["data"]["of_slot"], event["data"]["of_attempt"]
