"""The code of a run, where this process has it: old runs outlive what made them."""

from __future__ import annotations

from ledger.errors import DurableAgentsError
from runs.engine.agents import Agent, registry


def agent_here(graph_id: str) -> Agent | None:
    """The agent of that name and version; None where it isn't installed here."""
    try:
        return registry.find(graph_id)
    except DurableAgentsError:
        return None


def titles_of(agent: Agent | None) -> dict[str, str]:
    return {node.name: node.title for node in agent.nodes.values()} if agent else {}
