"""Tools as templates may read them: plain facts. (A tool itself is callable, and Django's templates call whatever they
can.)"""

from __future__ import annotations

from dataclasses import dataclass

from runs.engine.agents import Agent
from runs.engine.tools import Tool


@dataclass(frozen=True, slots=True)
class ToolCard:
    """What a page tells of a tool."""

    name: str
    title: str
    system: str
    effect: str
    is_pure: bool
    is_unsafe: bool
    answers_later: bool
    has_hook: bool
    queue: str
    rule: str
    fields: tuple[str, ...]
    result_fields: tuple[str, ...]
    external_field: str


def card_of(tool: Tool) -> ToolCard:
    return ToolCard(
        name=tool.name,
        title=tool.title,
        system=tool.system,
        effect=tool.effect,
        is_pure=tool.is_pure,
        is_unsafe=tool.is_unsafe,
        answers_later=tool.answers_later,
        has_hook=tool.reconcile is not None,
        queue=tool.gate.queue if tool.gate else "",
        rule=tool.gate.rule if tool.gate else "",
        fields=tuple(tool.input.model_fields),
        result_fields=tuple(tool.output.model_fields),
        external_field=tool.external_id or "",
    )


def cards_of(agent: Agent | None) -> dict[str, ToolCard]:
    """An agent's tools by name; none where the version isn't installed."""
    return {tool.name: card_of(tool) for tool in agent.all_tools()} if agent else {}
