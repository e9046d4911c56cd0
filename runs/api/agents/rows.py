"""A tool as the API tells of it: what it does, what a repeat would do, and whether its other side was seen to honour
keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pydantic import Field

from ledger.web.shapes import Shape
from runs.certification.results import Found, about, standing_of
from runs.engine.agents import Agent
from runs.engine.certification.standing import Word
from runs.engine.tools import Tool


class GateRow(Shape):
    queue: str
    rule: str


class CertificateRow(Shape):
    """How a keyed tool stands."""

    standing: Word
    until: datetime | None = Field(description="Until when what was found counts.")
    told: str = Field(description="What the newest probe saw; empty: there was none.")
    by: str
    at: datetime | None


class ToolRow(Shape):
    name: str
    title: str
    system: str
    effect: str
    replay_class: str
    gate: GateRow | None
    certificate: CertificateRow | None = Field(description="Null: it isn't keyed.")


def tool_row(agent: Agent, tool: Tool, found: Iterable[Found]) -> ToolRow:
    """A tool of an agent, as far as probes have `found` anything of it."""
    return ToolRow.of(
        tool,
        replay_class=str(tool.replay_class),
        gate=GateRow.of(tool.gate) if tool.gate else None,
        certificate=None if tool.is_pure or tool.is_unsafe else _certificate(agent, tool, found),
    )


def _certificate(agent: Agent, tool: Tool, found: Iterable[Found]) -> CertificateRow:
    stands, newest = standing_of(found, agent.name, tool), about(found, agent.name, tool)
    return CertificateRow(
        standing=stands.word,
        until=stands.until,
        told=newest.told if newest else "",
        by=newest.by if newest else "",
        at=newest.at if newest else None,
    )
