"""A slot is a call's identity: its place in the visit, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durableagents import Context, End
from ledger import events as e
from runs.engine.errors import MisusedContext
from tests.unit.engine.story import Story
from tests.world import Item, Notes, Outside, Toolbox, agent_of


def slots(story: Story) -> list[str]:
    return [event.slot for event in story.run.events if event.slot and event.FACT == "result"]


async def test_calls_are_numbered_in_the_order_of_the_visit_and_again_in_the_next(tools: Toolbox) -> None:
    async def first(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.look, Item(name="a"))
        await ctx.uuid()
        await ctx.call(tools.order, Item(name="b"))
        return "second"

    async def second(state: Notes, ctx: Context) -> str | End:
        await ctx.call(tools.look, Item(name="c"))
        return "second" if (await ctx.random()) >= 0 and len(story.events(e.VisitEntered)) < 3 else End()

    story = Story(agent_of(first, second, tools=tools.all()))
    assert await story.drive() == "completed"
    assert slots(story) == ["0.1/1", "0.1/2", "0.1/3", "0.2/1", "0.2/2", "0.3/1", "0.3/2"]


async def test_a_loop_visits_a_node_again_under_a_number_of_its_own(tools: Toolbox, outside: Outside) -> None:
    async def spin(state: Notes, ctx: Context) -> str | End:
        done = await ctx.call(tools.order, Item(name="same"))
        state.seen.append(done.ref)
        return End(state.seen) if len(state.seen) == 3 else "spin"

    story = Story(agent_of(spin, tools=tools.all()))
    assert await story.drive() == "completed"
    assert len(outside.executed("order")) == 3, "each visit is another logical call"
    assert len({r.key for r in outside.requests}) == 3


async def test_a_call_from_another_task_is_refused_and_sends_nothing(tools: Toolbox, outside: Outside) -> None:
    refused: list[Exception] = []

    async def node(state: Notes, ctx: Context) -> End:
        results = await asyncio.gather(
            asyncio.create_task(ctx.call(tools.order, Item(name="a"))),
            asyncio.create_task(ctx.call(tools.mail, Item(name="b"))),
            return_exceptions=True,
        )
        refused.extend(r for r in results if isinstance(r, Exception))
        return End()

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "completed"
    assert [type(error) for error in refused] == [MisusedContext, MisusedContext]
    assert outside.requests == [] and story.run.entries == []


@pytest.mark.parametrize("verb", ["call", "sleep", "now", "approve"])
async def test_a_context_kept_beyond_its_visit_does_nothing(tools: Toolbox, outside: Outside, verb: str) -> None:
    kept: list[Context] = []

    async def first(state: Notes, ctx: Context) -> str:
        kept.append(ctx)
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        calls: dict[str, Any] = {
            "call": lambda old: old.call(tools.order, Item(name="late")),
            "sleep": lambda old: old.sleep(1),
            "now": lambda old: old.now(),
            "approve": lambda old: old.approve("legal", title="late"),
        }
        with pytest.raises(MisusedContext):
            await calls[verb](kept[0])
        return End("clean")

    story = Story(agent_of(first, second, tools=tools.all()))
    assert await story.drive() == "completed" and story.output == "clean"
    assert outside.requests == []
    assert [event for event in story.run.events if event.slot] == []


async def test_a_task_that_outlives_its_visit_can_not_call(tools: Toolbox, outside: Outside) -> None:
    left: list[asyncio.Task[Any]] = []
    may_go = asyncio.Event()

    async def straggler(ctx: Context) -> None:
        await may_go.wait()
        await ctx.call(tools.mail, Item(name="too late"))

    async def node(state: Notes, ctx: Context) -> End:
        left.append(asyncio.create_task(straggler(ctx)))
        return End()

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "completed"
    may_go.set()
    with pytest.raises(MisusedContext):
        await left[0]
    assert outside.requests == []


async def test_the_key_is_a_function_of_the_slot_and_nothing_else(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name=state.asked.text))
        return End()

    agent = agent_of(node, tools=tools.all())
    one, two = Story(agent, {"text": "one"}), Story(agent, {"text": "two"})
    two.run.id = one.run.id  # as if the same run had reached the same slot with other arguments
    for story in (one, two):
        await story.drive()
    assert outside.requests[0].key == outside.requests[1].key
    assert two.failure.code == "key_reused", "and the other side sees that the bytes differ"


async def test_a_tool_that_the_agent_does_not_declare_is_not_called(tools: Toolbox, outside: Outside) -> None:

    async def node(state: Notes, ctx: Context) -> End:
        chosen = tools.mail  # by name, the declaration itself would be refused
        with pytest.raises(MisusedContext, match="does not declare the tool 'mail'"):
            await ctx.call(chosen, Item(name="a"))
        return End()

    assert await Story(agent_of(node, tools=[tools.order])).drive() == "completed"
    assert outside.requests == []


async def test_every_tool_is_only_reached_through_the_context(tools: Toolbox) -> None:
    for each in tools.all():
        with pytest.raises(TypeError, match=r"only be called through ctx\.call"):
            each(Item(name="x"))
