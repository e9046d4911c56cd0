"""A probe, from what is asked to what is on record: that it begins is an act on record before anything leaves, and what
it found is another."""

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

from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.errors import InvalidInput
from ledger.scrubbing import scrubbed, scrubbed_error
from ledger.web import misfit
from runs import failpoints, features
from runs.certification import results
from runs.certification.observing import PAUSE_SECONDS, Observation, Plan, observe
from runs.engine.agents import Agent, registry
from runs.engine.canonical import digest_of, plain, printable
from runs.engine.fingerprint import tool_digest
from runs.engine.secrets import NoSecrets, SecretUnavailable, with_secrets
from runs.engine.tools import Tool, ToolCall
from runs.models import Probe


@dataclass(frozen=True, slots=True)
class Asked:
    """A requested probe: `input` and `conflict` as plain data; `is_past_gate` if the person accepts that no gate is
    asked."""

    tool: str
    agent: str
    input: Any
    conflict: Any = None
    has_control: bool = False
    is_past_gate: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A probe that can be made: nothing was sent yet."""

    agent: Agent
    plan: Plan
    keys: dict[str, str]
    past_gate: str


def prepare(asked: Asked) -> Prepared:
    """Check everything that can be without sending. Raises InvalidInput by the field that is wrong, UnknownAgent,
    UnknownVersion."""
    if failpoints.driven():
        raise _wrong("tool", "is called inside a run", "probe from a shell: a run's calls are on its own record")
    agent, tool = find(asked.tool, asked.agent)
    if tool.is_pure or tool.is_unsafe:
        raise _wrong("tool", f"is {tool.replay_class}, so it sends no key", "only keyed tools can be probed")
    args = _fitting("input", tool, asked.input)
    conflict = None if asked.conflict is None else _fitting("conflict", tool, asked.conflict)
    if conflict is not None and plain(conflict) == plain(args):
        raise _wrong("conflict", "is the same body", "give another body of the same kind")
    queue = "" if tool.gate is None or not any(map(tool.gate.is_needed, (args, conflict or args))) else tool.gate.queue
    if queue and not asked.is_past_gate:
        fix = "give an input that nobody is asked about, or say --past-gate: it goes on the record"
        raise _wrong("input", f"would be put to {queue} first", fix)
    key, other = f"probe-{uuid4().hex}", f"probe-{uuid4().hex}"
    keys = {"first": key, "repeat": key, "control": other, "conflict": key}
    calls = asyncio.run(_with_secrets(tool, [args, conflict], {name: _call(tool, each) for name, each in keys.items()}))
    return Prepared(agent, Plan(tool, args, calls, conflict, asked.has_control), keys, queue)


def find(name: str, agent: str) -> tuple[Agent, Tool]:
    """The tool that is meant. Raises InvalidInput where there is none, or several that differ."""
    agents = [registry.find(agent)] if agent else registry.agents()
    having = [(each, tool) for each in agents if (tool := each.tool(name)) is not None]
    if not having:
        known = sorted({tool.name for each in agents for tool in each.all_tools() if not tool.is_pure})
        raise _wrong("tool", f"{name!r} is no tool of {agent or 'any agent'}", f"one of {', '.join(known) or 'none'}")
    if len({tool_digest(tool) for _, tool in having}) > 1:
        raise _wrong(
            "agent",
            f"several agents have a tool {name!r}, and they differ",
            f"say which: {', '.join(each.graph_id for each, _ in having)}",
        )
    return having[0]


def probe(ready: Prepared, *, by: Actor, pause: float = PAUSE_SECONDS) -> tuple[Probe | None, Observation]:
    """Make the calls, and put on record what was seen. No row where the first call came to nothing: then nothing is
    known."""
    tool, subject = ready.plan.tool, f"tool {ready.plan.tool.name} of {ready.agent.graph_id}"
    begun = {
        "tool": tool.name,
        "agent": ready.agent.graph_id,
        "made_of": tool_digest(tool),
        "keys": ready.keys,
        "body": digest_of(plain(ready.plan.args)),
        "past_gate": ready.past_gate,
    }
    why = "a probe calls the other side twice under one key"
    acted("probe", by=by, subject=subject, justification=why, after=begun)  # committed before anything leaves
    seen = asyncio.run(observe(ready.plan, pause))
    evidence = printable(scrubbed(seen.evidence(ready.keys)))
    told = printable(scrubbed_error(seen.told))[:2000]
    with transaction.atomic():
        row = _kept(ready, seen, evidence, told, by) if seen.calls["first"].is_answered else None
        after = {"verdict": row.verdict if row else None, "evidence_digest": digest_of(evidence), "keys": ready.keys}
        acted("probe_done", by=by, subject=subject, justification=told[:500], after=after)
    return row, seen


def _kept(ready: Prepared, seen: Observation, evidence: dict[str, Any], told: str, by: Actor) -> Probe:
    now = database_now()
    row = Probe(
        tool=ready.plan.tool.name,
        agent=ready.agent.name,
        version=ready.agent.version,
        made_of=tool_digest(ready.plan.tool),
        verdict=seen.verdict,
        told=told,
        evidence=evidence,
        evidence_digest=digest_of(evidence),
        by=by.ref,
        host=socket.gethostname(),
        at=now,
        expires_at=now + timedelta(days=settings.DURABLEAGENTS.probe_days),
    )
    results.keep(row)
    return row


async def _with_secrets(tool: Tool, args: object, calls: Mapping[str, ToolCall]) -> dict[str, ToolCall]:
    store = features.only(lambda each: each.secrets) or NoSecrets()
    try:
        return {name: await with_secrets(store, tool, args, call) for name, call in calls.items()}
    except SecretUnavailable as error:
        raise _wrong("tool", f"uses a secret that can't be read: {error}", "mend its source") from None


def _call(tool: Tool, key: str) -> ToolCall:
    url = f"{settings.DURABLEAGENTS.base_url}/api/v1/callbacks/{key}" if tool.answers_later else None
    return ToolCall(key, "", tool.name, "probe", 0, key, url, tool.timeout)


def _fitting(field: str, tool: Tool, given: Any) -> BaseModel:
    try:
        return tool.input.model_validate_json(json.dumps(given))
    except ValidationError as error:
        (where, problem), *_ = misfit.problems(error)
        raise _wrong(field, f"{where or 'it'}: {problem}", f"an input of {tool.name}") from None


def _wrong(field: str, problem: str, fix: str) -> InvalidInput:
    return InvalidInput(f"Invalid probe: {field} {problem}.", errors=[{"field": field, "problem": problem, "fix": fix}])
