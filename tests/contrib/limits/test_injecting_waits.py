from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

from durableagents import Assistant, Context, End
from durableagents.contrib.pydantic_ai import durable
from ledger import events as e
from runs.services import lifecycle
from tests.contrib.limits.budgets import in_line, let_in, pool, raised
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, events, problems
from tests.integration.runs.test_injecting import WHY, Deal, deal, handed
from tests.world import OLGA, Done, Toolbox


@pytest.mark.parametrize("is_own", [False, True], ids=["assistant", "own loop"])
def test_pending_request_says_what_its_model_was_told_since(stage: Stage, tools: Toolbox, is_own: bool) -> None:
    """Nothing was sent: the wait is its only record."""
    heard: list[str] = []

    def say(messages: list[Any], info: Any) -> ModelResponse:
        heard.append(str([p.content for m in messages for p in m.parts if isinstance(p, UserPromptPart)]))
        return ModelResponse([ToolCallPart("final_result", {"ref": "done", "amount": 1}, f"c{len(messages)}")])

    own = durable(PydanticAgent(FunctionModel(say), output_type=Done, name="mind"), tools={}, most_tokens=100)
    mind = own if is_own else Assistant(name="mind", instructions="Think.", output=Done, offline=say)

    async def node(state: Deal, ctx: Context) -> End:
        first = await ctx.think(mind, "buy it")
        return End([first.ref, (await ctx.think(mind, "and again")).ref])

    run = stage.start(deal(node, assistants=[mind]))
    shared = pool("model_calls", 1)
    assert stage.drive() == "parked" and len(in_line(run)) == 1 and len(heard) == 1
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    handed(run, message="Only from the second supplier.")
    raised(shared, 9)
    let_in()
    stage.kill_at = [("CP0", ""), ("CP2", "model")]
    assert stage.settle(run) == "completed"
    assert "supplier" not in heard[0] and all("Only from the second supplier." in each for each in heard[1:])
    items = [x.payload.get("from_people") for x in events(run, e.ModelRequested) if x.payload]
    assert items == [None, ["Only from the second supplier."]]
    assert problems(run) == []
    check_against_journal(run)
