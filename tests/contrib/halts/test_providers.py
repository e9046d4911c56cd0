from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction
from pydantic_ai.messages import ModelResponse, ToolCallPart

from durableagents import Assistant, Context, End
from durableagents.contrib.halts.models import HaltNow
from durableagents.contrib.halts.queries import HaltRow, find_halts
from durableagents.contrib.halts.services import secret_of
from durableagents.contrib.halts.worker import KnownHalts
from ledger import events as e
from runs.connections import dsn
from runs.engine.agents import Agent
from runs.engine.runtime import Control
from tests.contrib.halts.halting import Asking, halt, held, lift_for_all, now_halted, once
from tests.integration.runs.stage import Stage, events, fresh, in_thread, kinds, problems
from tests.world import Done, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def asked() -> list[str]:
    return []


def thinker(tools: Toolbox, asked: list[str]) -> Agent:
    def thought(messages: list[Any], info: Any) -> ModelResponse:
        asked.append("mind")
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "thought"})])

    mind = Assistant(name="mind", instructions="", output=Done, offline=thought)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="x", amount=1))
        return End((await ctx.think(mind, "once")).ref)

    return agent_of(node, tools=tools.all(), assistants=[mind])


def test_no_request_goes_to_a_provider_that_is_halted(stage: Stage, tools: Toolbox, asked: list[str]) -> None:
    run = stage.start(thinker(tools, asked))
    it = halt("provider", "scripted")
    assert stage.drive() == "halted" and asked == []
    assert "ToolReturned" in kinds(run) and "ModelRouted" not in kinds(run), "its tools are called as before"
    assert stage.drive() == "idle" and held() == {run.id} and fresh(run).owner is None
    lift_for_all(it)
    assert stage.drive() == "completed" and asked == ["mind"] and problems(run) == []


def test_a_request_that_was_halted_after_its_intent_does_not_leave(
    stage: Stage, tools: Toolbox, asked: list[str]
) -> None:
    stage.halts = Asking(stage)
    run = stage.start(thinker(tools, asked))
    stage.at = once(lambda: in_thread(lambda: halt("provider", "scripted")), "CP2", "model")
    assert stage.drive() == "halted" and asked == []
    assert len(events(run, e.ModelRouted)) == 1
    lift_for_all(now_halted())
    assert stage.drive() == "completed" and asked == ["mind"]
    assert len(events(run, e.ModelRouted)) == 2 and problems(run) == []


@pytest.mark.parametrize("key", ["openai", "scripted2", "script"])
def test_another_provider_s_halt_keeps_nobody_waiting(stage: Stage, tools: Toolbox, asked: list[str], key: str) -> None:
    run = stage.start(thinker(tools, asked))
    halt("provider", key)
    assert stage.drive() == "completed" and asked == ["mind"] and problems(run) == []


# --- forged rows ------------------------------------------------------------------------------------------------------


LIFT = """
    INSERT INTO runs_halt (halt, n, kind, scope, key, refuses, stage, share, agents, tags, by, why, at, opens, code)
    SELECT halt, 1, kind, scope, key, refuses, 'lifted', 0, '{}', '{}', by, why, clock_timestamp(), %s, code
    FROM runs_halt WHERE halt = %s"""


@pytest.mark.parametrize("shown", ["nothing", "a guess", "another's"])
def test_a_forged_lift_lifts_nothing(stage: Stage, shown: str) -> None:
    """With any database right and any secret."""
    it = halt("tool", "order")
    opens = {"nothing": None, "a guess": b"guessed", "another's": secret_of(UUID(int=1), 0)}[shown]
    with pytest.raises(DatabaseError, match="the halt holds"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LIFT, [opens, it.halt])
    assert HaltNow.objects.get().halt == it.halt


def test_a_worker_whose_run_still_works_has_not_confirmed(stage: Stage, tools: Toolbox, asked: list[str]) -> None:
    """It acknowledged the halt; the run stops at its next step."""
    run = stage.start(thinker(tools, asked))
    it, known, control = halt("agent", run.agent), KnownHalts(stage.worker.id), Control()
    items: list[HaltRow] = []

    async def rounds() -> None:
        async with await psycopg.AsyncConnection.connect(dsn(), autocommit=True) as link:
            await known.refresh(link, {run.id: control})
            items.append(in_thread(lambda: find_halts([it.halt])[0]))
            await known.refresh(link, {})

    stage.wait(rounds())
    assert [one.says for one in items[0].unconfirmed] == ["stopping"] and items[0].state == "requested"
    assert find_halts([it.halt])[0].state == "confirmed"
