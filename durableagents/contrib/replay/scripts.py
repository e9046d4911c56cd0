"""Generates a pytest from a run's journal: results of calls by place, and people's actions as lines of code."""

from __future__ import annotations

import pprint
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from durableagents.contrib.replay.files import InvalidRecording
from ledger import events as e
from ledger.kinds import CONTENT_REFUSED, NEVER_SENT
from runs.engine.agents import Agent
from runs.engine.checkpoints.position import REPLAYED
from runs.engine.tape import payload_of
from runs.engine.tools import ReplayClass

_VISIT = re.compile(r"(\d+)\.(\d+)(?=/|$)")
Timed = tuple[e.Event, datetime]


def without_moves(events: Sequence[e.Event], times: Sequence[datetime]) -> tuple[list[e.Event], list[datetime]]:
    """Return events and times as if the run had one version, leaving out migrations and the visits that they ended.

    Raises InvalidRecording."""
    kept: list[Timed] = []
    visit, left = 0, 0  # number of the current visit (0 between visits), and how many visits were dropped
    for event, at in zip(events, times, strict=True):
        if not isinstance(event, e.RunMigrated):
            event = _renumbered(event, left)
            visit = event.visit if isinstance(event, e.VisitEntered) else visit
            kept.append((event, at))
            continue
        inside = [each for each in kept if visit and _is_of(each[0], visit)]
        if event.how == REPLAYED or any(isinstance(x, e.MessageHandled) for x, _ in inside):
            raise InvalidRecording(
                f"it was migrated from {event.of} to {event.to}: neither version's code performed all of it"
            )
        kept = [each for each in kept if each not in inside]
        visit, left = 0, left + (1 if visit else 0)
    return [event for event, _ in kept], [at for _, at in kept]


def _is_of(event: e.Event, visit: int) -> bool:
    if isinstance(event, e.VisitEntered):
        return event.visit == visit
    found = _VISIT.match(event.visit if isinstance(event, e.MessageHandled) else event.slot or "")
    return found is not None and int(found[2]) == visit


def _renumbered(event: e.Event, left: int) -> e.Event:
    """Renumber an event's slots to account for dropped visits."""

    def renumber(slot: str) -> str:
        return _VISIT.sub(lambda found: f"0.{int(found[2]) - left}", slot, count=1) if _VISIT.match(slot) else slot

    if event.slot is not None:
        event = replace(event, slot=renumber(event.slot))
    match event:
        case e.VisitEntered():
            return replace(event, visit=event.visit - left)
        case e.MessageHandled():
            return replace(event, visit=renumber(event.visit), calls=[renumber(slot) for slot in event.calls])
        case _:
            return event


# Events that a test in memory can't repeat, with the reason.
_NOT_REPEATABLE = {
    "RunCarriedOn": "it continues another run",
    "RunForked": "it is a fork of another run",
    "RunRenewed": "it was continued as another run",
    "RunHandedOff": "it was handed off to another agent",
    "OperatorNeeded": "it stopped for an operator: its record did not fit",
    "CallbackArrivedLate": "an answer arrived late",
    "ToolAnsweredLate": "an answer arrived late",
    "ToolReadAnew": "it repeated a read",
}
_ENDS = {"completed": "assert_completed", "failed": "assert_failed", "cancelled": "assert_cancelled"}
WIDTH = 112


@dataclass(frozen=True)
class RecordedRun:
    """The record of a run, from which a test is generated."""

    run_id: str
    agent: Agent
    created: e.RunCreated
    later: Sequence[e.Event]
    times: Sequence[datetime]
    state: str

    @property
    def events(self) -> list[e.Event]:
        return [self.created, *self.later]


def place_of_agent(agent: Agent) -> tuple[str, str]:
    """Return the module and name from which a test can import the agent. Raises InvalidRecording."""
    module = agent.nodes[agent.start].function.__module__
    names = [name for name, value in vars(sys.modules[module]).items() if value is agent and name.isidentifier()]
    if not names or module == "__main__":
        raise InvalidRecording(f"{agent.graph_id} can't be imported: no name in module {module} refers to it")
    return module, names[0]


def source_of_test(run: RecordedRun, *, in_order: bool = True) -> str:
    """Return the source of a pytest. Raises InvalidRecording with the reason if no test can repeat the run."""
    module, name = place_of_agent(run.agent)
    _check_repeatable(run)
    created, record = run.created, dict(_record(run))
    lines = list(_lines(run.events))
    text = "\n".join(f"    {line}" for line in lines)
    uses_refused = "pytest.raises" in text
    imports = ["import pytest\n"] if uses_refused else []
    durable = [*(["Budget"] if "Budget(" in text or _caps(run.events) else []), *(["Refused"] if uses_refused else [])]
    if durable:
        imports.append(f"from durableagents import {', '.join(durable)}")
    order = "" if in_order else ", in_order=False"
    named = name if name == "agent" else f"{name} as agent"
    return f'''"""A run of {run.agent.graph_id} as a test, made from its record by `manage.py runs to-test`.

RECORD has the result of each call by its place (visit/call). Nothing is sent.
"""

{chr(10).join([*imports, "from durableagents.testing import Harness", f"from {module} import {named}"])}

INPUT = {_format_value(created.payload)}

RECORD = {_format_value(record)}

EFFECTS = {_format_value(_effects(run.events))}


def test_{_identifier(run.agent)}_run_{run.run_id.replace("-", "_")[:13]}() -> None:
    story = Harness(
        agent, INPUT, record=RECORD, at="{run.times[0].isoformat()}", by={created.by!r},
        run_id="{run.run_id}",{_caps(run.events)}
    )
{text}{chr(10) if text else ""}    story.assert_effects(EFFECTS{order})
    story.assert_each_effect_once()
    {_end(run)}
    story.assert_follows_record()
    story.assert_replays()
'''


def _format_value(value: Any) -> str:
    return pprint.pformat(value, width=WIDTH, sort_dicts=False)


def _identifier(agent: Agent) -> str:
    return "".join(c if c.isalnum() else "_" for c in agent.name)


def _check_repeatable(run: RecordedRun) -> None:
    for event in run.events:
        if event.KIND in _NOT_REPEATABLE:
            raise InvalidRecording(f"{_NOT_REPEATABLE[event.KIND]} ({event.KIND}), which a test in memory can't repeat")
        if isinstance(event, e.MessageHandled) and event.place == 0:
            raise InvalidRecording("a message was handled between two nodes, which a test in memory can't repeat")
        if isinstance(event, e.BudgetSet) and "usd_micro" in event.caps:
            raise InvalidRecording("it has a budget in dollars, and a test has no prices")
    if run.state not in _ENDS and not run.state.startswith("waiting"):
        raise InvalidRecording(f"it is {run.state}: only runs that wait or have ended can become tests")


# --- results of the calls ---------------------------------------------------------------------------------------------


def _record(run: RecordedRun) -> Iterator[tuple[str, Any]]:
    """Yield slots with their recorded results. A tool call that was made more than once has a list of results."""
    calls: dict[str, dict[int, dict[str, Any]]] = {}
    others: dict[str, Any] = {}
    fields = {(x.slot, x.attempt): x.model for x in run.events if isinstance(x, e.ModelRequested)}
    order: list[str] = []
    for event, at in zip(run.events, run.times, strict=True):
        slot, found = event.slot, None
        if slot is None or not slot[:1].isdigit():
            continue
        match event:
            case e.ValueRead():
                found = {"is": event.what, "value": event.payload}
            case e.ModelResponded():
                found = {"assistant": fields[slot, event.attempt], "answers": payload_of(event)["response"]}
            case e.ModelFailed() if event.code not in NEVER_SENT:
                message = payload_of(event).get("message", "")
                found = {"assistant": fields[slot, event.attempt], "fails": event.code, "message": message}
            case _:
                known = calls.setdefault(slot, {}).setdefault(event.attempt, {})
                _apply_event(known, event, at)
                if known and slot not in order:
                    order.append(slot)
        if found is not None:
            others[slot] = found
            order.append(slot)
    for slot in order:
        if slot in others:
            yield slot, others[slot]
        else:
            made = [known for _, known in sorted(calls[slot].items()) if known]
            yield slot, made[0] if len(made) == 1 else made


def _apply_event(known: dict[str, Any], event: e.Event, at: datetime) -> None:
    payload = payload_of(event)
    match event:
        case e.ToolInvoked():
            known |= {"tool": event.tool, "args": payload["arguments"], "class": event.replay_class}
        case e.ToolRead() | e.CachedReadTaken():
            known |= {"tool": event.tool, "args": payload["arguments"], "returns": payload["result"]}
        case e.ToolReturned():
            known["returns"] = payload["result"]
        case e.ToolFailed() if event.code != CONTENT_REFUSED:
            known |= {"tool": event.tool, "args": payload["arguments"], "refused": event.code}
            known |= {"message": payload.get("message", ""), "details": payload.get("details")}
        case e.ToolAccepted():
            known["accepted"] = payload.get("receipt")
            known["within_seconds"] = int((datetime.fromisoformat(payload["deadline"]) - at).total_seconds()) + 1
        case e.ToolReconciled() if event.by.startswith("user:"):
            if known.pop("class", "") != ReplayClass.UNSAFE_ON_REPLAY:
                raise InvalidRecording(f"a person settled the outcome of {event.tool}, which may be repeated")
            known["unknown"] = True
        case e.ToolReconciled() if event.verdict == "happened":
            known["returns"] = payload.get("result")
        case e.ToolReconciled():
            raise InvalidRecording(f"{event.by} settled the outcome of {event.tool}: {event.verdict}")
        case _:
            return
    if not isinstance(event, e.ToolInvoked):
        known.pop("class", None)


def _effects(events: Sequence[e.Event]) -> list[tuple[str, Any]]:
    done = {
        (x.slot, x.attempt)
        for x in events
        if isinstance(x, (e.ToolReturned, e.ToolAccepted))
        or (isinstance(x, e.ToolReconciled) and x.verdict == "happened" and not x.by.startswith("user:"))
    }
    return [
        (x.tool, payload_of(x)["arguments"])
        for x in events
        if isinstance(x, e.ToolInvoked) and (x.slot, x.attempt) in done and x.replay_class != ReplayClass.PURE
    ]


# --- actions of people and other systems ------------------------------------------------------------------------------


def _lines(events: Sequence[e.Event]) -> Iterator[str]:
    refused = {x.n for x in events if isinstance(x, e.MessageHandled) and x.outcome != "answered"}
    sleeps = {x.slot for x in events if isinstance(x, e.WaitOpened) and payload_of(x).get("call") == "sleep"}
    voted = {x.approval_id for x in events if isinstance(x, e.ApprovalVoted) and x.verdict == "approve"}
    for event in events:
        payload, slot = payload_of(event), f"slot={event.slot!r}"
        match event:
            case e.ApprovalDecided(verdict="expired"):
                yield f"story.let_pass({slot})"
            case e.ApprovalVoted(verdict="approve" | "abstain"):
                yield f"story.{event.verdict}({slot}, {_actor_arguments(event)})"
            case e.ApprovalDecided(verdict="approved") if event.approval_id in voted:
                pass  # the last vote gets a line of its own
            case e.ApprovalDecided():
                verb = "approve" if event.verdict == "approved" else "reject"
                more = ", fail=True" if payload.get("then") == "fail" else ""
                yield f"story.{verb}({slot}, {_actor_arguments(event)}{more})"
            case e.WaitResolved(resolution="fired") if event.wait == "timer" and event.slot in sleeps:
                yield f"story.let_pass({slot})"
            case e.WaitResolved(resolution="timed_out"):
                yield f"story.let_pass({slot})"
            case e.InputAnswered():
                yield f"story.answer({payload['answer']!r}, {slot}, by={event.by!r}, role={event.role!r})"
            case e.SignalReceived():
                yield f"story.signal({event.name!r}, {event.payload!r}, by={event.by!r})"
            case e.MessageReceived():
                if event.n in refused:
                    yield "with pytest.raises(Refused):"
                indent = "    " if event.n in refused else ""
                yield f"{indent}story.message({event.name!r}, {event.payload!r}, by={event.by!r})"
            case e.CallbackReceived():
                yield f"story.call_back({event.payload!r}, {slot})"
            case e.ToolReconciled() if event.by.startswith("user:"):
                known = {name: payload[name] for name in ("result", "receipt") if payload.get(name) is not None}
                more = "".join(f", {name}={value!r}" for name, value in known.items())
                yield f"story.settle({event.verdict!r}, {slot}, by={event.by!r}{more})"
            case e.ChildEnded():
                yield _child(event, payload, slot)
            case e.CancelRequested():
                yield f"story.cancel(by={event.by!r})"
            case e.RunRetried():
                yield f"story.retry(by={event.by!r})"
            case e.BudgetSet() if event is not _first_budget(events):
                yield f"story.raise_budget(Budget({_kwargs(event.caps)}), by={event.by!r})"
            case _:
                pass


def _child(event: e.ChildEnded, payload: dict[str, Any], slot: str) -> str:
    if event.state == "completed":
        return f"story.end_child(output={payload.get('output')!r}, {slot})"
    return f"story.end_child(code={event.code!r}, state={event.state!r}, {slot})"


def _first_budget(events: Sequence[e.Event]) -> e.Event | None:
    return next((x for x in events[:4] if isinstance(x, e.BudgetSet)), None)


def _kwargs(caps: dict[str, int]) -> str:
    return ", ".join(f"{name}={most}" for name, most in caps.items())


def _caps(events: Sequence[e.Event]) -> str:
    first = _first_budget(events)
    return f" budget=Budget({_kwargs(first.caps)})," if isinstance(first, e.BudgetSet) and first.caps else ""


def _end(run: RecordedRun) -> str:
    if run.state not in _ENDS:
        return f"assert story.state == {run.state!r}, story.now"
    last = next(x for x in reversed(run.events) if isinstance(x, (e.RunCompleted, e.RunFailed, e.RunCancelled)))
    text = ""
    if isinstance(last, e.RunCompleted):
        text = repr(last.payload)
    elif isinstance(last, e.RunFailed):
        text = repr(last.code)
    return f"story.{_ENDS[run.state]}({text})"


# --- run the test once before it is returned
# -----------------------------------------------------------------------------------


def proven_source_of_test(run: RecordedRun) -> str:
    """Return the source of the test, after it passed with the current code. Raises InvalidRecording.

    If branches run in another order, the test doesn't check the order of effects."""
    text = source_of_test(run)
    problem = _problem_of(text)
    if problem is not None and "effect " in problem:
        text = source_of_test(run, in_order=False)
        problem = _problem_of(text)
    if problem is not None:
        raise InvalidRecording(f"the test fails when run in memory: {problem}")
    return text


def _problem_of(text: str) -> str | None:
    names: dict[str, Any] = {"__name__": "to_test"}
    try:
        exec(compile(text, "<runs to-test>", "exec"), names)
        (test,) = (value for name, value in names.items() if name.startswith("test_"))
        test()
    except Exception as error:
        return f"{error}" if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    return None


def _actor_arguments(event: e.ApprovalDecided | e.ApprovalVoted) -> str:
    why = payload_of(event).get("justification") or "as on record"
    return f"by={event.by!r}, role={event.role!r}, justification={why!r}"
