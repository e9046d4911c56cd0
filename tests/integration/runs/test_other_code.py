"""A run continues with the code that wrote its checkpoint, or a person looks first."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from durableagents import Agent, Context, End
from ledger import events as e
from runs.engine.agents import registry
from runs.engine.fingerprint import first_scheme, second_scheme
from runs.models import AgentCode, Checkpoint, LogLine, Run
from runs.services import lifecycle, signals
from tests.integration.runs.stage import Stage, announce, events, fresh, kinds, problems
from tests.integration.runs.test_versions import production
from tests.world import OLGA, SHOP, Item, Notes, Outside, Toolbox, agent_of

__all__ = ["production"]  # the fixture


def made(tools: Toolbox, amount: int = 1) -> Agent:
    if amount == 1:

        async def waits(state: Notes, ctx: Context) -> End:
            await ctx.signal("go")
            return End((await ctx.call(tools.pay, Item(name="rent"))).ref)
    else:

        async def waits(state: Notes, ctx: Context) -> End:
            await ctx.signal("go")
            return End((await ctx.call(tools.pay, Item(name="rent", amount=amount))).ref)

    registry.remove("payer@1.0.0")
    agent = agent_of(waits, name="payer", tools=[tools.pay])
    agent.fingerprint()
    return agent


def parked(stage: Stage, agent: Agent) -> Run:
    announce(stage)
    run = stage.start(agent)
    assert stage.drive() == "parked"
    return run


def go(run: Run) -> None:
    signals.signal(run.id, "go", {}, by=SHOP)


def test_production_stops_a_run_of_other_code_by_name(stage: Stage, request: pytest.FixtureRequest) -> None:
    tools = Toolbox(Outside())
    first = made(tools)
    announce(stage)
    changed = made(tools, amount=2)  # in development
    run = parked(stage, changed)
    registry.remove(first.graph_id)
    registry.add(first)
    request.getfixturevalue("production")
    announce(stage)
    assert first.graph_id in registry.graph_ids(), "this process has the version's own code"
    go(run)
    assert stage.drive() == "operator" and tools.outside.requests == []
    (stop,) = events(run, e.OperatorNeeded)
    assert stop.reason == "other_code" and stop.payload["wrote"] == changed.fingerprint()
    assert stop.payload["differences"] == ["node waits: code changed"] and "node waits" in stop.payload["problem"]
    assert stage.drive() == "idle", "it waits until somebody has looked"
    lifecycle.retry(run.id, by=OLGA, justification="the other code was mine, of yesterday")
    assert stage.settle(run) == "completed" and len(tools.outside.requests) == 1
    assert kinds(run).count("OperatorNeeded") == 1 and problems(run) == []


def test_look_allows_only_the_code_that_was_looked_at(stage: Stage, request: pytest.FixtureRequest) -> None:
    tools = Toolbox(Outside())
    run = parked(stage, made(tools, amount=2))
    second = made(tools)
    request.getfixturevalue("production")
    go(run)
    assert stage.drive() == "operator"
    lifecycle.retry(run.id, by=OLGA, justification="this one may")
    registry.remove(second.graph_id)
    third = made(tools, amount=3)
    assert stage.drive() == "operator" and tools.outside.requests == []
    assert [stop.payload["code"] for stop in events(run, e.OperatorNeeded)] == [
        second.fingerprint(),
        third.fingerprint(),
    ]
    lifecycle.cancel(run.id, by=OLGA, justification="enough")
    stage.settle(run)
    assert str(fresh(run).state) == "cancelled" and tools.outside.requests == [] and problems(run) == []


def test_development_warns_once_about_other_code(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    tools = Toolbox(Outside())
    run = parked(stage, made(tools, amount=2))
    made(tools)
    go(run)
    stage.kill_at.append(("CP3", "pay"))
    with caplog.at_level(logging.WARNING, "durableagents.engine"):
        assert stage.settle(run) == "completed"
    stage.send_told()
    assert kinds(run).count("OperatorNeeded") == 0
    (line,) = LogLine.objects.filter(run_id=run.id)
    assert line.level == "warning" and "written by different code of payer@1.0.0" in line.text
    assert any("node waits: code changed" in each.getMessage() for each in caplog.records)


@pytest.mark.parametrize("scheme", [first_scheme, second_scheme])
def test_checkpoint_of_an_older_scheme_is_its_own(stage: Stage, production: None, scheme: Any) -> None:
    tools = Toolbox(Outside())
    agent = made(tools)
    now, run = agent.fingerprint(), stage.start(agent)
    agent._fingerprint = scheme(agent)
    assert stage.drive() == "parked"
    assert Checkpoint.objects.get(run_id=run.id).fingerprint == scheme(agent)
    agent._fingerprint = now
    go(run)
    announce(stage)
    assert stage.settle(run) == "completed" and kinds(run).count("OperatorNeeded") == 0


def test_of_code_that_no_worker_here_ever_had_it_is_said_that_nobody_knows(stage: Stage, production: None) -> None:
    tools = Toolbox(Outside())
    agent = made(tools)
    now = agent.fingerprint()
    for strange in ("9:of a later release", "", "nonsense"):
        run = stage.start(agent)
        agent._fingerprint = strange or "2:" + "0" * 64
        assert stage.drive() == "parked"
        agent._fingerprint = now
        go(run)
        assert stage.drive() == "operator"
        (stop,) = events(run, e.OperatorNeeded)
        assert stop.reason == "other_code" and "the difference isn't known here" in stop.payload["problem"]


def test_what_a_workers_code_was_made_of_is_kept_once(stage: Stage) -> None:
    agent = made(Toolbox(Outside()))
    announce(stage)
    announce(stage)
    (kept,) = AgentCode.objects.filter(graph_id=agent.graph_id)
    assert kept.fingerprint == agent.fingerprint() and kept.parts == agent.parts()
