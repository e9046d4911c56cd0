"""A run that kills its workers is stopped, whatever else is written about it meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart

from durableagents import Assistant, Context, End
from ledger import events as e
from runs.engine.agents import Agent
from runs.models import Run
from runs.services import signals
from runs.workers import failover
from runs.workers.failover import MAX_DEATHS
from tests.integration.runs.stage import Stage, events, fresh, head, now
from tests.integration.runs.test_incidents import dies, told
from tests.world import OLGA, Done, Item, Notes, Toolbox, agent_of, ends_with

FIRST_THEN_COUNTED = [False] + [True] * MAX_DEATHS


def thinking() -> Agent:
    def think(messages: list[Any], info: Any) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "thought"})])

    mind = Assistant(name="mind", instructions="", output=Done, offline=think)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(mind, "what?")).ref)

    return agent_of(node, assistants=[mind])


def counted(run: Run) -> list[bool]:
    return [lost.is_counted for lost in events(run, e.WorkerLost)]


@pytest.mark.parametrize("point", ["CP2", "CP4"])
def test_a_request_whose_answer_kills_anyone_who_reads_it_is_not_paid_for_without_end(stage: Stage, point: str) -> None:
    """Each claim gives the lost request up, recorded with its price, and sends another."""
    run = stage.start(thinking())
    for _ in range(MAX_DEATHS + 1):
        dies(stage, run, point, "model")
    assert str(fresh(run).state) == "waiting_human" and counted(run) == FIRST_THEN_COUNTED
    assert len(events(run, e.ModelRouted)) == MAX_DEATHS + 1 and told(run)[-1].is_stopped


def test_what_comes_from_outside_meanwhile_is_no_progress(stage: Stage) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.signal("go"))

    run = stage.start(agent_of(node))
    for n in range(MAX_DEATHS):
        worker = stage.hire(is_dead=True)
        stage.claim(worker)
        signals.signal(run.id, "go", n, by=OLGA)
        assert failover.worker_died(worker.id, "reaped") == 1
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
    assert counted(run) == [True] * MAX_DEATHS and str(fresh(run).state) == "waiting_human"


def test_what_comes_from_outside_is_not_the_next_step(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    dies(stage, run)
    worker = stage.hire()
    (claimed,) = stage.claim(worker)
    signals.signal(run.id, "go", 1, by=OLGA)
    assert told(run)[0].claimed_at is not None and told(run)[0].stepped_at is None
    stage.drive_claimed(claimed, worker)
    assert str(fresh(run).state) == "completed" and told(run)[0].stepped_at is not None


def test_steps_that_are_on_record_once_are_progress(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End([(await ctx.call(tools.order, Item(name=str(n)))).ref for n in range(MAX_DEATHS + 2)])

    run = stage.start(agent_of(node, tools=tools.all()))
    for _ in range(MAX_DEATHS + 1):
        dies(stage, run, "CP6", "order")
    assert head(run).deaths == 0 and stage.drive() == "completed"
