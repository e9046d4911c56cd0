"""Probe tools: check, record the intent before anything is sent, make the calls, and record the result."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from pydantic import BaseModel, ValidationError

from durableagents.contrib.certify.models import Probe
from durableagents.contrib.certify.observing import PAUSE_SECONDS, Observation, ProbePlan, observe
from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.errors import InvalidInput
from ledger.scrubbing import scrubbed, scrubbed_error
from ledger.web import misfit
from runs import failpoints, features
from runs.engine.agents import Agent, registry
from runs.engine.canonical import digest_of, plain, printable
from runs.engine.fingerprint import tool_digest
from runs.engine.secrets import NoSecrets, SecretUnavailable, with_secrets
from runs.engine.tools import Tool, ToolCall


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """A requested probe.

    `input` and `conflict` are plain data. `is_past_gate` means that the caller accepts that the calls are sent
    without an approval.
    """

    tool: str
    agent: str
    input: Any
    conflict: Any = None
    has_control: bool = False
    is_past_gate: bool = False


@dataclass(frozen=True, slots=True)
class PreparedProbe:
    """A checked probe, before any call.

    `past_gate` is the queue whose approval the probe skips; empty if none.
    """

    agent: Agent
    plan: ProbePlan
    keys: dict[str, str]
    past_gate: str


def prepare(request: ProbeRequest) -> PreparedProbe:
    """Check everything that can be checked without sending.

    Raises InvalidInput (naming the wrong field), UnknownAgent, UnknownVersion.
    """
    if failpoints.driven():
        raise _wrong("tool", "is called inside a run", "probe from a shell, outside a run")
    agent, tool = find(request.tool, request.agent)
    if tool.is_pure or tool.is_unsafe:
        raise _wrong("tool", f"is {tool.replay_class}, so it sends no key", "only keyed tools can be probed")
    args = _validated("input", tool, request.input)
    conflict = None if request.conflict is None else _validated("conflict", tool, request.conflict)
    if conflict is not None and plain(conflict) == plain(args):
        raise _wrong("conflict", "is the same body", "give another body of the same kind")
    queue = "" if tool.gate is None or not any(map(tool.gate.is_needed, (args, conflict or args))) else tool.gate.queue
    if queue and not request.is_past_gate:
        fix = "give an input that needs no approval, or add --past-gate, which is recorded"
        raise _wrong("input", f"needs approval by {queue} first", fix)
    key, other = f"probe-{uuid4().hex}", f"probe-{uuid4().hex}"
    keys = {"first": key, "repeat": key, "control": other, "conflict": key}
    calls = asyncio.run(_with_secrets(tool, [args, conflict], {name: _call(tool, each) for name, each in keys.items()}))
    return PreparedProbe(agent, ProbePlan(tool, args, calls, conflict, request.has_control), keys, queue)


def find(name: str, agent: str) -> tuple[Agent, Tool]:
    """Return the tool of this name and an agent that has it.

    Raises InvalidInput if there is none, or if agents have different tools of this name.
    """
    agents = [registry.find(agent)] if agent else registry.agents()
    having = [(each, tool) for each in agents if (tool := each.tool(name)) is not None]
    if not having:
        known = sorted({tool.name for each in agents for tool in each.all_tools() if not tool.is_pure})
        raise _wrong(
            "tool", f"{name!r} is not a tool of {agent or 'any agent'}", f"one of {', '.join(known) or 'none'}"
        )
    if len({tool_digest(tool) for _, tool in having}) > 1:
        raise _wrong(
            "agent",
            f"several agents have a tool {name!r}, and they differ",
            f"name one: {', '.join(each.graph_id for each, _ in having)}",
        )
    return having[0]


def probe(ready: PreparedProbe, *, by: Actor, pause: float = PAUSE_SECONDS) -> tuple[Probe | None, Observation]:
    """Make the calls and record the result.

    Return None if the first call failed, since that shows nothing about keys.
    """
    tool, subject = ready.plan.tool, f"tool {ready.plan.tool.name} of {ready.agent.graph_id}"
    facts = {
        "tool": tool.name,
        "agent": ready.agent.graph_id,
        "made_of": tool_digest(tool),
        "keys": ready.keys,
        "body": digest_of(plain(ready.plan.args)),
        "past_gate": ready.past_gate,
    }
    why = "a probe calls the upstream system twice under one key"
    # The intent is committed before anything is sent.
    acted("probe", by=by, subject=subject, justification=why, after=facts)
    observation = asyncio.run(observe(ready.plan, pause))
    evidence = printable(scrubbed(observation.evidence(ready.keys)))
    finding = printable(scrubbed_error(observation.finding))[:2000]
    with transaction.atomic():
        row = _store(ready, observation, evidence, finding, by) if observation.calls["first"].is_answered else None
        after = {"verdict": row.verdict if row else None, "evidence_digest": digest_of(evidence), "keys": ready.keys}
        acted("probe_done", by=by, subject=subject, justification=finding[:500], after=after)
    return row, observation


def _store(ready: PreparedProbe, observation: Observation, evidence: dict[str, Any], finding: str, by: Actor) -> Probe:
    now = database_now()
    row = Probe(
        tool=ready.plan.tool.name,
        agent=ready.agent.name,
        version=ready.agent.version,
        made_of=tool_digest(ready.plan.tool),
        verdict=observation.verdict,
        told=finding,
        evidence=evidence,
        evidence_digest=digest_of(evidence),
        by=by.ref,
        host=socket.gethostname(),
        at=now,
        expires_at=now + timedelta(days=settings.DURABLEAGENTS.probe_days),
    )
    row.seal()
    row.save(force_insert=True)
    return row


async def _with_secrets(tool: Tool, args: object, calls: Mapping[str, ToolCall]) -> dict[str, ToolCall]:
    store = features.only(lambda each: each.secrets) or NoSecrets()
    try:
        return {name: await with_secrets(store, tool, args, call) for name, call in calls.items()}
    except SecretUnavailable as error:
        raise _wrong("tool", f"uses a secret that can't be read: {error}", "repair its source") from None


def _call(tool: Tool, key: str) -> ToolCall:
    url = f"{settings.DURABLEAGENTS.base_url}/api/v1/callbacks/{key}" if tool.answers_later else None
    return ToolCall(key, "", tool.name, "probe", 0, key, url, tool.timeout)


def _validated(field: str, tool: Tool, value: Any) -> BaseModel:
    try:
        return tool.input.model_validate_json(json.dumps(value))
    except ValidationError as error:
        (where, problem), *_ = misfit.problems(error)
        raise _wrong(field, f"{where or 'it'}: {problem}", f"an input of {tool.name}") from None


def _wrong(field: str, problem: str, fix: str) -> InvalidInput:
    return InvalidInput(f"Invalid probe: {field} {problem}.", errors=[{"field": field, "problem": problem, "fix": fix}])
