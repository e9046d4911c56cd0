"""A halt under a name that nothing here has holds nothing yet: it is taken, and says so."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from durableagents import Assistant
from runs.engine.agents import registry
from runs.models import AgentVersion, Limit, Price
from runs.queries.halts.standing import holding
from tests.halts.halting import WHY, calls, halt, lift, stage_of, tagged
from tests.runs.stage import Stage
from tests.world import Item, Toolbox, agent_of, ends_with

pytestmark = pytest.mark.django_db


def told() -> set[tuple[str, str]]:
    return {(each.scope, each.key) for one in holding() for each in one.unknown}


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
    Limit.objects.create(key="provider:acme")
    for scope, key in (
        ("tag", "acme"),
        ("agent", agent.name),
        ("version", agent.graph_id),
        ("tool", "order"),
        ("provider", "openai"),
        ("provider", "acme"),
        ("all", ""),
    ):
        halt(scope, key)
    assert told() == set()


def test_what_other_workers_have_or_had_is_not(stage: Stage, tools: Toolbox) -> None:
    """This process has no code of it any more, or not yet."""
    agent = calls(tools, "order")
    registry.remove(agent.graph_id)
    AgentVersion.objects.create(
        graph_id="elsewhere@3.0.0", fingerprint="f", parts={"tools": {"wire": {}}}, first_used_at="2026-01-01T00:00Z"
    )
    for scope, key in (("agent", "elsewhere"), ("version", "elsewhere@3.0.0"), ("tool", "wire")):
        halt(scope, key)
    assert told() == set()
    halt("version", "elsewhere@3.0.1")
    assert told() == {("version", "elsewhere@3.0.1")}


def test_what_an_agents_own_models_are_of_is_known(stage: Stage) -> None:
    agent_of(ends_with(1), assistants=[Assistant("mind", "Think.", output=Item, models=["acme:large"])])
    halt("provider", "acme")
    assert told() == set()


@pytest.mark.parametrize("lists", ["ARRAY[NULL]::text[]", "'{{a},{b}}'::text[]", "ARRAY['nowhere', NULL]"])
def test_a_forged_row_takes_nobodys_page_away(stage: Stage, lists: str) -> None:
    halt("all")
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(f"UPDATE runs_halt SET agents = {lists}, tags = {lists}")
        cursor.execute("SET session_replication_role = DEFAULT")
    (one,) = holding()
    assert not one.is_genuine and {each.key for each in one.unknown} <= {"nowhere"}


def test_the_names_that_are_like_it_are_told_the_most_alike_first(stage: Stage, tools: Toolbox) -> None:
    calls(tools, "order", "mail")
    halt("tool", "ORDRE")
    (one,) = holding()
    assert [each.like for each in one.unknown] == [("order",)] and one.unknown[0].meant == "Did you mean order?"
    lift(one.row)
    assert holding() == []


def test_it_is_told_of_what_goes_on_too_and_only_while_it_does(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    tagged(agent, "acme")
    it = halt("all")
    staged = stage_of(it, agents=[agent.name, "nowhere"], tags=["acme", "beta"])
    assert told() == {("agent", "nowhere"), ("tag", "beta")}
    tagged(agent, "beta")
    assert told() == {("agent", "nowhere")}
    stage_of(staged, share=5)
    assert told() == set()


def test_a_shell_is_told_too(stage: Stage, tools: Toolbox) -> None:
    calls(tools, "order")
    out = StringIO()
    call_command("halt", "set", "tool", "ordr", "--justification", WHY, stdout=out)
    assert "\tnothing here has the tool ordr\tDid you mean order?" in out.getvalue().splitlines()
