"""Describe a story's runs in one line, for error messages."""

from __future__ import annotations

from collections.abc import Callable

from durableagents.testing.family import Family, Member
from ledger import events as e
from runs.engine.memory import MemoryWait
from runs.engine.recordings.replaying import format_value
from runs.engine.tape import payload_of


def wait_in_words(wait: MemoryWait) -> str:
    """Describe what a run waits for."""
    spec, detail = wait.spec, wait.spec.detail
    words: dict[str, Callable[[], str]] = {
        "approval": lambda: f"an approval of {detail.get('tool')} in queue {detail.get('queue')!r}",
        "input": lambda: f"an answer of {detail.get('of')!r} to {detail.get('title')!r}",
        "signal": lambda: f"the signal {detail.get('name')!r}",
        "message": lambda: f"a message: {', '.join(detail.get('names') or ['any'])}",
        "webhook": lambda: f"a callback to {detail.get('tool') or spec.slot}",
        "timer": lambda: f"{spec.deadline:%Y-%m-%d %H:%M:%S} UTC",
        "child": lambda: f"its child {detail.get('agent', detail.get('child'))}",
        "reconcile": lambda: f"an operator to settle the unknown outcome of {detail.get('tool')}",
        "operator": lambda: f"an operator ({detail.get('reason')})",
        "budget": lambda: "a higher budget",
    }
    return f"{words.get(spec.kind, lambda: spec.kind)()} at {spec.slot}"


def now_in_words(member: Member) -> str:
    """Describe what one run is doing."""
    run, name = member.run, member.agent.graph_id
    if run.state == "completed":
        return f"{name} completed with {format_value(run.events[-1].payload)}"
    if run.state == "failed":
        failed = member.last(e.RunFailed)
        return f"{name} failed with {failed.code}: {payload_of(failed).get('message', '')}"
    if run.state == "cancelled":
        return f"{name} was cancelled"
    stop = member.last(e.OperatorNeeded)
    waits = [wait_in_words(wait) for wait in run.open_waits()]
    why = ""
    if stop is not None and any(wait.spec.kind == "operator" for wait in run.open_waits()):
        why = f": {payload_of(stop).get('problem') or format_value(stop.payload)}"
    return f"{name} waits for {' and '.join(waits)}{why}" if waits else f"{name} is {run.state}"


def all_in_words(family: Family) -> str:
    """Describe what all runs are doing, leaving out ended ones if others are active."""
    last = family.members[0]
    while last.successor is not None:
        last = last.successor
    busy = [member for member in family.members if not member.has_ended]
    return "; ".join(now_in_words(member) for member in busy or [last])
