"""Two versions of an agent, a fleet that serves them, and ramps between them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from durableagents.contrib.releases import services
from durableagents.contrib.releases.models import Ramp
from durableagents.contrib.releases.services import RaiseBody, RampActBody, RampBody
from ledger import events as e
from runs.engine.agents import Agent
from runs.models import Process, Run, Served
from runs.services import lifecycle
from runs.services.starts import keys
from tests.integration.runs.stage import Stage, events
from tests.world import OLGA, SHOP, agent_of, ends_with

WHY = "as the release plan says"
NAME = "releasing"


def versions(*nodes: Any, name: str = NAME, **more: Any) -> tuple[Agent, Agent]:
    nodes = nodes or (ends_with("done"),)
    older, newer = (agent_of(*nodes, name=name, version=version, **more) for version in ("1.0.0", "2.0.0"))
    return older, newer


def served(stage: Stage, *agents: Agent, worker: Any = None, is_draining: bool = False) -> None:
    """Let a worker serve these agents and stay alive however slow the test is."""
    who = (worker or stage.worker).id
    Process.objects.filter(pk=who).update(last_heartbeat_at=timezone.now() + timedelta(hours=1))
    for agent in agents:
        Served.objects.update_or_create(
            worker=who, graph_id=agent.graph_id, defaults={"is_draining": is_draining, "is_quarantined": False}
        )


def ramp(share: Any = 50, **more: Any) -> Ramp:
    body = {"agent": NAME, "from_version": "1.0.0", "to_version": "2.0.0", "share": share, "justification": WHY}
    return services.create_ramp(RampBody.model_validate(body | more), by=OLGA)


def seen(of: Ramp, **more: Any) -> RampActBody:
    return RampActBody(revision=of.revision, justification=WHY, **more)


def raised(of: Ramp, share: Any) -> Ramp:
    return services.raise_ramp(of.pk, RaiseBody(share=share, justification=WHY), by=OLGA)


def start(key: str = "", tags: Any = (), agent: str = NAME, **more: Any) -> Run:
    if key:
        with transaction.atomic():
            wanted = keys.Wanted(agent, {}, tags, business_key=key, on_conflict="queue", **more)
            return keys.start(wanted, by=SHOP).run
    return lifecycle.start(agent, {}, by=SHOP, tags=tags)


def told(run: Run) -> e.VersionAssigned:
    (one,) = events(run, e.VersionAssigned)
    return one
