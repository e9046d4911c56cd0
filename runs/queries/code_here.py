"""A run's agent code, if this process has it. Runs may exist longer than their code."""

from __future__ import annotations

from ledger.errors import DurableAgentsError
from runs.engine.agents import Agent, registry
from runs.models import AgentVersion, Run


def agent_here(graph_id: str) -> Agent | None:
    """Return the agent of that name and version; None if this process lacks it."""
    try:
        return registry.find(graph_id)
    except DurableAgentsError:
        return None


def is_known_agent(name: str) -> bool:
    """Return whether a run, a version or a registered agent has this name."""
    is_here = any(each.name == name for each in registry.agents())
    versions = AgentVersion.objects.filter(graph_id__startswith=f"{name}@")
    return is_here or Run.objects.filter(agent=name).exists() or versions.exists()


def titles_of(agent: Agent | None) -> dict[str, str]:
    return {node.name: node.title for node in agent.nodes.values()} if agent else {}
