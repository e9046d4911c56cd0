"""Tools as plain data for templates, because Django's templates would call a tool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from runs import features
from runs.engine.agents import Agent
from runs.engine.certification import Certificate
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
    certificate: CertificateCard | None = None


@dataclass(frozen=True, slots=True)
class CertificateCard:
    """A keyed tool's certificate, and its newest probe."""

    word: str
    tone: str
    until: datetime | None
    told: str
    by: str


_TONES = {"certified": "ok", "ignores_keys": "bad", "refuses_repeats": "bad", "hook_denies": "bad"}


def _certificate_card(certificate: Certificate) -> CertificateCard:
    verdict = certificate.standing
    tone = "bad" if verdict.is_unsafe else _TONES.get(verdict.word, "hold")
    word = {"certified": "certified", "not_probed": "not certified"}.get(
        verdict.word, f"not certified: {verdict.word.replace('_', ' ')}"
    )
    until = verdict.until if verdict.is_certified else None
    return CertificateCard(word, tone, until, certificate.told, certificate.by)


def certified_cards_of(agent: Agent) -> list[ToolCard]:
    """Return an agent's tools with their certificates."""
    certificate_of = features.certificate_reader()
    found = [(card_of(tool), certificate_of(agent.name, tool)) for tool in agent.all_tools()]
    return [replace(card, certificate=_certificate_card(each) if each else None) for card, each in found]


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
