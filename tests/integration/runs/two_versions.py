"""Two versions of an agent, and a fleet that serves them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from runs.engine.agents import Agent
from runs.models import Process, Run, Served
from runs.services import lifecycle
from runs.services.starts import keys
from tests.integration.runs.stage import Stage
from tests.world import SHOP, agent_of, ends_with

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


def start(key: str = "", tags: Any = (), agent: str = NAME, **more: Any) -> Run:
    if key:
        with transaction.atomic():
            wanted = keys.Wanted(agent, {}, tags, business_key=key, on_conflict="queue", **more)
            return keys.start(wanted, by=SHOP).run
    return lifecycle.start(agent, {}, by=SHOP, tags=tags)
