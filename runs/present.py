"""What a run looks like from outside. One shape for API and console; whole lists in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.db.models import Q

from ledger import events as e
from ledger.models import Event, Head
from ledger.present import (
    masked,
    payload_at,
    payload_of,
    present_entry,
    present_event,
    present_override,
)
from runs import versions
from runs.engine.agents import Agent
from runs.models import ENDED, WAITING, Run, State, Wait
from runs.services import Accepted

__all__ = [
    "masked", "payload_of", "present_accepted", "present_agent", "present_entry", "present_event", "present_override", "present_run",
 "present_runs", "present_wait", "status_of",
]  # fmt: skip


def status_of(state: str) -> str:
    """The group a state belongs to: running, waiting, paused, completed, failed or cancelled."""
    if state in WAITING:
        return "waiting"
    if state in (State.PENDING, State.RUNNING, State.COMPENSATING):
        return "running"
    return str(state)


# Between the position that an operator's wait is named by and what was found there: what came from outside in that moment.
_NEAR = 16


def present_wait(wait: Wait, found: Any = None) -> dict[str, Any]:
    """One thing a run waits for. `found` is what stopped it, where it waits for an operator: of two calls that differ, both."""
    # Whatever stands in the row: one that was damaged must not hide the list that it is in.
    known = wait.detail if isinstance(wait.detail, dict) else {}
    detail = masked(known) | ({"found": masked(found)} if isinstance(found, dict) else {})
    if wait.kind == Wait.Kind.INPUT:
        detail["schema"] = known.get("schema")  # the agent's own code; whoever answers needs every name in it
    return {
        "id": wait.id,
        "kind": wait.kind,
        "since": wait.opened_at,
        "deadline": wait.deadline,
        "detail": detail,
        "slot": wait.slot,
    }


def present_runs(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Runs with their heads, open waits and endings, in four further queries however many they are."""
    ids = [run.id for run in runs]
    heads = Head.objects.in_bulk(ids)
    waits: dict[UUID, list[Wait]] = {}
    for wait in Wait.objects.filter(run_id__in=ids, resolved_at__isnull=True).order_by("opened_at"):
        waits.setdefault(wait.run_id, []).append(wait)
    endings = payload_at([(run.id, run.end_seq) for run in runs if run.state in ENDED and run.end_seq])
    is_any_ready = any(run.ready_at is not None and run.owner is None for run in runs)
    drivable = versions.drivable() if is_any_ready else frozenset()
    blocked = {run.id: versions.why_not_driven(run, drivable) for run in runs}
    found = _found([wait for some in waits.values() for wait in some if wait.kind == Wait.Kind.OPERATOR])
    heads |= {run_id: Head.standing_in(run_id) for run_id in ids if run_id not in heads}
    return [present_run(run, heads[run.id], waits.get(run.id, []), endings.get(run.id), blocked[run.id], found) for run in runs]


def present_accepted(accepted: Accepted) -> dict[str, Any]:
    """A run that was started a moment ago, in this transaction: nothing is left to ask the database for."""
    run = accepted.run
    return present_run(run, accepted.head, (), None, versions.why_not_driven(run, accepted.drivable))


def _found(stops: Sequence[Wait]) -> dict[UUID, Any]:
    """What each wait for an operator is about, by the wait's id: in one query, and none where nobody waits for one."""
    near = Q()
    for wait in stops:
        position = wait.slot.rpartition("/")[2]
        if position.isdecimal():
            near |= Q(run_id=wait.run_id, seq__gt=int(position), seq__lte=int(position) + _NEAR)
    if not near:
        return {}
    events = list(Event.objects.filter(near, kind=e.OperatorNeeded.KIND).only("run_id", "seq", "kind", "sealed").order_by("seq"))
    told = {event.run_id: payload_of(event) for event in reversed(events)}
    return {wait.id: told.get(wait.run_id) for wait in stops}


def present_run(
    run: Run, head: Head, waits: Iterable[Wait], ending: Any = None, blocked: str | None = None, found: Mapping[UUID, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """One run. `ending` is the payload of the event that ended it, if it has ended; `blocked` says why nobody drives it; `found` what its
    waits for an operator are about."""
    is_over = run.state in ENDED
    return {
        "id": run.id,
        "agent": run.agent,
        "version": run.version,
        "state": str(run.state),
        "status": status_of(run.state),
        "blocked": blocked,
        "waiting_for": [] if is_over else [present_wait(wait, found.get(wait.id)) for wait in waits],
        "step_index": head.steps,
        "epoch": head.epoch,
        "seq": head.seq,
        "last_checkpoint_at": run.last_checkpoint_at,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at if is_over else None,
        "output": ending if run.state == State.COMPLETED else None,
        "error": _error(run, ending),
        "tags": run.tags,
        "trace_id": run.trace_id,
        "created_by": run.created_by,
        "node": run.node or None,
        "visit": run.visit,
        "resumable": run.state in (State.PAUSED, State.FAILED),
        "pause_requested": head.is_pause_requested,
        "cancel_requested": head.is_cancel_requested,
        "usage": {
            "tokens_in": head.tokens_in,
            "tokens_out": head.tokens_out,
            "usd_micro": head.usd_micro,
            "tool_calls": head.tool_calls,
            "model_calls": head.model_calls,
        },
    }


def _error(run: Run, ending: Any) -> dict[str, Any] | None:
    if run.state != State.FAILED:
        return None
    told = ending if isinstance(ending, dict) else {"message": "" if ending is None else str(ending)}
    return {"code": run.error_code or "failed", "message": "", **told}


def present_agent(agent: Agent) -> dict[str, Any]:
    """One agent version, with all that is needed to start it."""
    return {
        "name": agent.name,
        "version": agent.version,
        "graph_id": agent.graph_id,
        "title": agent.title,
        "description": agent.description,
        "input_schema": agent.input.model_json_schema(),
        "output_schema": agent.output.model_json_schema() if agent.output else None,
        "samples": [{"label": sample.label, "input": sample.input} for sample in agent.samples],
        "start": agent.start,
        "nodes": [
            {"name": node.name, "title": node.title, "edges": list(node.edges), "doc": node.doc}
            for node in agent.nodes.values()
        ],
        "tools": [
            {
                "name": tool.name,
                "title": tool.title,
                "system": tool.system,
                "effect": tool.effect,
                "replay_class": str(tool.replay_class),
                "gate": {"queue": tool.gate.queue, "rule": tool.gate.rule} if tool.gate else None,
            }
            for tool in agent.all_tools()
        ],
    }
