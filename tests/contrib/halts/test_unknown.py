"""A halt of an unknown name is accepted, holds nothing yet, and says so."""

from __future__ import annotations

import pytest

from durableagents.contrib.halts.queries import halts_in_force
from runs.models import Price
from tests.contrib.halts.halting import calls, halt, tagged
from tests.integration.runs.stage import Stage
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def told() -> set[tuple[str, str]]:
    return {(each.scope, each.key) for one in halts_in_force() for each in one.unknown}


@pytest.mark.parametrize("scope", ["tag", "agent", "version", "tool", "provider"])
def test_a_name_that_nothing_has_is_halted_and_told(stage: Stage, scope: str) -> None:
    halt(scope, "nowhere@1.0.0" if scope == "version" else "nowhere")
    assert told() == {(scope, "nowhere@1.0.0" if scope == "version" else "nowhere")}


def test_what_there_is_is_not(stage: Stage, tools: Toolbox) -> None:
    agent = calls(tools, "order")
    tagged(agent, "acme")
    Price.objects.create(
        model="openai:gpt-x",
        usd_micro_in=1,
        usd_micro_out=1,
        valid_from="2026-01-01T00:00Z",
        set_by="user:olga",
        set_at="2026-01-01T00:00Z",
    )
    for scope, key in (
        ("tag", "acme"),
        ("agent", agent.name),
        ("version", agent.graph_id),
        ("tool", "order"),
        ("provider", "openai"),
        ("all", ""),
    ):
        halt(scope, key)
    assert told() == set()
