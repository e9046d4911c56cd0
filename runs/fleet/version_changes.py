"""Descriptions of code that changed under its version, for logs, refusals and pages."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg
from django.conf import settings
from django.db import DatabaseError, connection
from psycopg_pool import PoolTimeout

from ledger.errors import first_line
from runs import log_messages
from runs.engine.agents import Agent, registry
from runs.engine.fingerprint import as_stored, differences, join_differences, next_version
from runs.journal.libpq import Pool

log = logging.getLogger("runs.fleet.agent_versions")

_CODE_OF = "SELECT parts FROM runs_agentcode WHERE graph_id = %s AND fingerprint = %s"
_STORED = "SELECT graph_id, fingerprint FROM runs_agentversion WHERE graph_id = ANY(%s)"
_PARTS = "SELECT graph_id, fingerprint, parts FROM runs_agentversion WHERE graph_id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class Change:
    """Changed code of a version: the differences, and the proposed version number."""

    graph_id: str
    said: tuple[str, ...]
    proposed: str

    @property
    def told(self) -> str:
        """Return the change as text: `refund: gate limit 10000 → 20000; bump to 1.0.1`."""
        return f"{join_differences(self.said)}; bump to {self.proposed}"

    def __str__(self) -> str:
        return f"{self.graph_id}: {self.told}"


def change_of(agent: Agent, fingerprint: str, parts: Any) -> Change:
    """Return how an agent differs from its stored version.
    They are compared according to the scheme of the stored fingerprint."""
    mine = as_stored(agent, fingerprint)
    stored = json.loads(parts) if isinstance(parts, str) else parts
    texts = [] if mine is None else differences(stored, mine)
    if not texts:
        texts = ["its parts were recorded by another release of Durable Agents, so the differences can't be listed"]
    return Change(agent.graph_id, tuple(texts), proposed(agent))


def proposed(agent: Agent) -> str:
    """Return the next patch number that no other version in this process has."""
    return next_version(agent.version, (each.version for each in registry.agents() if each.name == agent.name))


def changed_here(agents: Iterable[Agent] | None = None) -> list[Change]:
    """Return the changes of these agents, or of all agents, in this process."""
    every = {agent.graph_id: agent for agent in (registry.agents() if agents is None else agents)}
    with connection.cursor() as cursor:
        cursor.execute(_STORED, [sorted(every)])
        differing = [graph_id for graph_id, stored in cursor.fetchall() if not every[graph_id].is_own(stored)]
        if not differing:
            return []
        cursor.execute(_PARTS, [sorted(differing)])
        return [change_of(every[graph_id], stored, parts) for graph_id, stored, parts in sorted(cursor.fetchall())]


def say_changes() -> None:
    """Log changed versions at the start of a process that starts runs.
    In production, such a process refuses to start runs of these versions."""
    is_production = settings.DURABLEAGENTS.is_production
    try:
        changes = changed_here()
    except DatabaseError as error:
        log.warning(log_messages.VERSIONS_NOT_COMPARED, first_line(error))
        return
    for change in changes:
        if is_production:
            log.error(log_messages.VERSION_CHANGED, change, "no run of it is started here")
        else:
            log.warning(log_messages.VERSION_CHANGED, change, "in production none of its runs would be started")


async def code_of(pool: Pool, graph_id: str, fingerprint: str) -> Any:
    """Return the parts of the code with this fingerprint; None if no worker ever had that code."""
    try:
        async with pool.connection() as link:
            row = await (await link.execute(_CODE_OF, [graph_id, fingerprint])).fetchone()
    except (psycopg.Error, OSError, PoolTimeout) as error:
        log.warning(log_messages.VERSIONS_NOT_COMPARED, first_line(error))
        return None
    return None if row is None else row[0]
