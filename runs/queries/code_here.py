"""A run's agent code, if this process has it; runs may outlive their code."""

from __future__ import annotations

from ledger.errors import DurableAgentsError
from runs.engine.agents import Agent, registry


def agent_here(graph_id: str) -> Agent | None:
    """Return the agent of that name and version; None if this process lacks it."""
    try:
        return registry.find(graph_id)
    except DurableAgentsError:
        return None


def titles_of(agent: Agent | None) -> dict[str, str]:
    return {node.name: node.title for node in agent.nodes.values()} if agent else {}
