from __future__ import annotations

import pytest

from durableagents import Context, End, Pending, ReplayClass, ToolCall, tool
from ledger import events as e
from runs.engine import canonical
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import Done, Item, Notes, agent_of


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "MAX_VALUE", 2_000)


@each_case("answers_later", [False, True])
async def test_a_person_settles_a_keyed_call_whose_answer_is_too_large(answers_later: bool) -> None:
    sent: list[str | None] = []

    async def export(args: Item, call: ToolCall) -> Done:
        sent.append(call.key)
        return Done(ref="x" * 3_000)

    async def export_later(args: Item, call: ToolCall) -> Pending:
        sent.append(call.key)
        return Pending(receipt={"ref": "x" * 3_000})

    keyed = ReplayClass.IDEMPOTENT_WITH_KEY
    made = (
        tool(replay_class=keyed, answers_later=True, output=Done)(export_later)
        if answers_later
        else tool(replay_class=keyed)(export)
    )

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(made, Item(name="all"))).ref)

    story = Story(agent_of(node, tools=[made]))
    assert await story.drive() == "parked"
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert (
        unknown.is_sender_done
        and "sha256:" in unknown.payload["reason"]
        and "a value may have 2000: store it" in unknown.payload["reason"]
    )
    assert story.facts() == ["pending", "unknown"]
    assert await story.drive() == "parked" and len(sent) == 1, "it is not made again"
    story.reconcile("happened", {"ref": "s3://exports/all"}, result={"ref": "s3://exports/all", "amount": 0})
    assert await story.drive() == "completed" and story.output == "s3://exports/all" and len(sent) == 1


async def test_a_read_that_is_too_large_fails_the_run_and_leaves_nothing_to_settle() -> None:
    async def look(args: Item, call: ToolCall) -> Done:
        return Done(ref="x" * 3_000)

    reading = tool(replay_class=ReplayClass.PURE)(look)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(reading, Item(name="all"))).ref)

    story = Story(agent_of(node, tools=[reading]))
    assert await story.drive() == "failed" and story.failure.code == "tool_result"
