"""Tools as plain data for templates, because Django's templates would call a tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from runs.certification.results import Found, about, standing_of
from runs.engine.agents import Agent
from runs.engine.tools import Tool


@dataclass(frozen=True, slots=True)
class ToolCard:
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
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """A keyed tool's certification, and its newest probe."""

    word: str
    tone: str
    until: datetime | None
    told: str
    by: str


_TONES = {"certified": "ok", "ignores_keys": "bad", "refuses_repeats": "bad", "hook_denies": "bad"}


def certificate_of(agent: Agent, tool: Tool, found: Sequence[Found]) -> Certificate | None:
    """Return a keyed tool's certification; None for other tools."""
    if tool.is_pure or tool.is_unsafe:
        return None
    stands, newest = standing_of(found, agent.name, tool), about(found, agent.name, tool)
    tone = "bad" if stands.is_unsafe else _TONES.get(stands.word, "hold")
    word = {"certified": "certified", "not_probed": "not certified"}.get(
        stands.word, f"not certified: {stands.word.replace('_', ' ')}"
    )
    told, by = (newest.told, newest.by) if newest else ("", "")
    return Certificate(word, tone, stands.until if stands.is_certified else None, told, by)


def certified_cards_of(agent: Agent, found: Sequence[Found]) -> list[ToolCard]:
    return [replace(card_of(tool), certificate=certificate_of(agent, tool, found)) for tool in agent.all_tools()]


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
    """Return an agent's tools by name; {} if the version isn't installed."""
    return {tool.name: card_of(tool) for tool in agent.all_tools()} if agent else {}
