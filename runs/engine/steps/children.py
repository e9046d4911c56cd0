"""Child runs as steps. Waiting for a child run doesn't occupy a worker.

The child's budget is reserved here and released in runs/services/families/ends.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from pydantic import BaseModel, ValidationError

from ledger import events as e
from runs.engine.agents import Agent, registry
from runs.engine.attributes import BadAttributes, setting
from runs.engine.budget import NO_BUDGET, RESOURCES, Budget, Caps, Usage
from runs.engine.canonical import plain
from runs.engine.errors import ChildFailure, MisusedContext, UnknownAgent, UnknownVersion
from runs.engine.forks import child_tool
from runs.engine.journal import Batch, ChildSpec, WaitSpec, deadline_in
from runs.engine.screening import received
from runs.engine.steps import forks
from runs.engine.tape import Slot, payload_of
from runs.engine.visit import Visit

# Maximum depth of nested runs, so that an agent that starts itself stops eventually.
MAX_GENERATIONS = 8
PATIENCE = timedelta(days=90)  # after this the wait is overdue; the child has its own time limit


async def child(
    visit: Visit,
    slot: str,
    agent: Agent | str,
    input: BaseModel | Mapping[str, Any],
    *,
    budget: Budget | None,
    tags: Sequence[str],
    attributes: Mapping[str, Any],
) -> Any:
    """Start a run of `agent`, unless that is already recorded, and wait for its end. Return its output.

    Raises ChildFailure.
    """
    wanted = agent.graph_id if isinstance(agent, Agent) else agent
    values = plain(input) if isinstance(input, BaseModel) else plain(dict(input))
    requested_hash = visit.runtime.hasher({"child": wanted.partition("@")[0], "input": values})
    record = visit.recall(slot, "child", requested_hash, values)
    past = record.now
    if isinstance(past.result, e.ChildEnded):
        if past.result.state != "completed":
            raise _ended_badly(past.result)
        output = payload_of(past.result).get("output")
        output = await received(visit, slot, record, output, source="child", name=wanted)
        return _ended(agent, past.result, wanted, output)
    if past.intent is None and past.result is None:
        await forks.passed(visit, _child_request(slot, record, agent, wanted, values, requested_hash))
    if isinstance(past.result, e.AnswerTakenOver):
        return _output(agent, payload_of(past.result).get("result"))
    if past.intent is None:
        await _start(
            visit, slot, record, _resolve_version(wanted), values, requested_hash, budget or NO_BUDGET, tags, attributes
        )
    visit.park(_wait(visit, slot, record.current))


def _child_request(
    slot: str, record: Slot, agent: Agent | str, wanted: str, values: Any, requested_hash: str
) -> forks.PendingCall:
    return forks.PendingCall(
        slot=slot,
        attempt=record.current,
        record=record,
        tool=child_tool(wanted),
        title=f"Start {wanted}",
        arguments=values,
        requested_hash=requested_hash,
        executed_hash=requested_hash,
        what="child",
        fits=lambda output: _output(agent, output),
    )


def _output(agent: Agent | str, output: Any) -> Any:
    """Return the output, parsed as the agent's model if an agent object was given. Raises ValidationError."""
    shape = agent.output if isinstance(agent, Agent) else None
    return output if shape is None else shape.model_validate(output)


def _ended_badly(end: e.ChildEnded) -> ChildFailure:
    return ChildFailure(end.agent, end.child, end.state, end.code, str(payload_of(end).get("message", "")))


def _ended(agent: Agent | str, end: e.ChildEnded, wanted: str, output: Any) -> Any:
    """Return the output of a completed child. Raises ChildFailure if it doesn't fit the agent's model.

    The output may not fit if the child handed off to another agent.
    """
    shape = agent.output if isinstance(agent, Agent) else None
    if shape is None:
        return output
    try:
        return shape.model_validate(output)
    except ValidationError as error:
        is_others = end.agent.partition("@")[0] != wanted.partition("@")[0]
        whose = f"it handed off to {end.agent}, whose" if is_others else "its"
        problem = f"{whose} output does not fit: {error}"
        raise ChildFailure(end.agent, end.child, "completed", "bad_output", problem) from error


def _resolve_version(wanted: str) -> Agent:
    """Return the version that the child will use. This version stays fixed even if others are released meanwhile."""
    try:
        return registry.find_for_step(wanted)
    except (UnknownAgent, UnknownVersion) as error:
        raise MisusedContext(error.detail) from error


async def _start(
    visit: Visit,
    slot: str,
    record: Slot,
    agent: Agent,
    values: Any,
    requested_hash: str,
    budget: Budget,
    tags: Sequence[str],
    attributes: Mapping[str, Any],
) -> None:
    if visit.depth >= MAX_GENERATIONS:
        raise MisusedContext(f"{agent.graph_id}: the limit of {MAX_GENERATIONS} nested runs is reached, so no more are")
    try:
        checked = plain(agent.input.model_validate(values))
        agent.begin(agent.input.model_validate(checked))
    except (ValidationError, ValueError) as error:
        raise MisusedContext(f"the input does not fit {agent.graph_id}: {error}") from error
    given = budget.tightest(agent.budget or NO_BUDGET)
    caps = _share(visit, given)
    found_by = _attributes(visit, agent, attributes)
    visit.afford(slot, record.current, _expected(caps), is_reserved=True)
    run_id = child_id(visit.run_id, slot, record.current)
    event = e.ChildStarted(
        slot=slot,
        attempt=record.current,
        child=run_id,
        agent=agent.graph_id,
        requested_hash=requested_hash,
        caps=caps.stated(),
        payload={"arguments": values},
    )
    spec = ChildSpec(
        run_id=run_id,
        agent=agent.name,
        version=agent.version,
        input=checked,
        tags=tuple(tags),
        caps=caps,
        time=given.time,
        parent=visit.run_id,
        slot=slot,
        attempt=record.current,
        depth=visit.depth + 1,
        trace_id=visit.trace_id,
        attributes=found_by,
    )
    wait = _wait(visit, slot, record.current, agent)
    await visit.commit(Batch([event, wait.opened()], wait=wait, child=spec, is_intent=True))
    record.now.intent = event


def _attributes(visit: Visit, agent: Agent, given: Mapping[str, Any]) -> e.AttributesSet | None:
    try:
        return setting(agent.attributes, given, by=f"run:{visit.run_id}") if given else None
    except BadAttributes as error:
        raise MisusedContext(f"the attributes do not fit {agent.graph_id}: {error}") from error


def _share(visit: Visit, budget: Budget) -> Caps:
    """Return the child's caps. Where none is requested, the child gets all that this run has left."""
    wanted, left = budget.caps(), visit.meter.left()
    return Caps(*(_smaller_cap(getattr(wanted, name), getattr(left, name)) for name in (f.name for f in fields(Caps))))


def _smaller_cap(wanted: int | None, left: int | None) -> int | None:
    return wanted if wanted is not None else left


def _expected(caps: Caps) -> Usage:
    return Usage(**{name: getattr(caps, name) or 0 for name in RESOURCES})


def _wait(visit: Visit, slot: str, attempt: int, agent: Agent | None = None) -> WaitSpec:
    detail = {"child": child_id(visit.run_id, slot, attempt)}
    if agent is not None:
        detail |= {"title": agent.title, "agent": agent.graph_id}
    return WaitSpec(visit.run_id, slot, attempt, "child", 0, deadline_in(visit.journal.now(), PATIENCE), detail)


def child_id(parent: str, slot: str, attempt: int) -> str:
    """Return the id of the run that an attempt starts. The id is the same on every replay."""
    return str(uuid5(NAMESPACE_URL, f"{parent}|{slot}|{attempt}|run"))
