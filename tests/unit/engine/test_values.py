"""Time, chance and waiting: read once, then always the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durableagents import Context, End
from ledger import events as e
from runs.engine.budget import Caps, Remaining
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import Item, Notes, Outside, Toolbox, agent_of


@each_case("verb", ["now", "random", "uuid"])
async def test_a_value_is_the_same_on_every_replay(tools: Toolbox, verb: str) -> None:
    seen: list[Any] = []

    async def node(state: Notes, ctx: Context) -> End:
        values = [await getattr(ctx, verb)() for _ in range(3)]
        seen.append(values)
        await ctx.call(tools.order, Item(name="a"))
        await ctx.sleep(0)
        return End()

    story = Story(agent_of(node, tools=tools.all()), kill_at=[("CP2", "order"), ("CP6", "order")])
    assert await story.settle() == "completed"
    assert len(seen) == 4 and all(values == seen[0] for values in seen[1:])
    if verb != "now":
        assert len(set(seen[0])) == 3, "three reads are three values"


async def test_values_are_durable_without_a_commit_of_their_own(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        drawn = await ctx.uuid()
        await ctx.call(tools.order, Item(name=str(drawn)))
        return End(str(drawn))

    story = Story(agent_of(node, tools=tools.all()), kill_at=[("CP1", "order")])
    assert await story.drive() == "killed"
    assert story.events(e.ValueRead) == [], "nothing depended on it yet, so it may be drawn again"
    story.kill_at = [("CP2", "order")]
    assert await story.drive() == "killed"
    kinds = story.kinds()
    assert kinds.index("ValueRead") + 1 == kinds.index("ToolInvoked")
    assert await story.settle() == "completed"
    assert story.output == story.events(e.ValueRead)[0].payload


async def test_a_value_read_last_still_rides_with_the_end(tools: Toolbox) -> None:
    async def first(state: Notes, ctx: Context) -> str:
        state.seen.append(str(await ctx.uuid()))
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        return End([*state.seen, str(await ctx.uuid())])

    story = Story(agent_of(first, second))
    assert await story.drive() == "completed"
    assert [event.payload for event in story.events(e.ValueRead)] == story.output


async def test_now_is_the_journals_clock_and_not_the_workers(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.now()).isoformat())

    story = Story(agent_of(node))
    story.run.skew = timedelta(days=400)
    assert await story.drive() == "completed"
    assert datetime.fromisoformat(story.output) > datetime.now(UTC) + timedelta(days=399)


async def test_sleep_holds_no_worker_and_wakes_once(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(3600)
        await ctx.sleep(until=datetime(2099, 1, 1, tzinfo=UTC))
        return End()

    story = Story(agent_of(node))
    assert await story.drive() == "parked" and story.run.state == "waiting_event"
    ((first, wait),) = story.waiting("timer")
    assert timedelta(minutes=59) < wait.spec.deadline - datetime.now(UTC) <= timedelta(hours=1)
    assert await story.drive() == "parked" and len(story.events(e.WaitOpened)) == 1
    story.run.resolve(first, "fired")
    assert await story.drive() == "parked"
    ((second, wait),) = story.waiting("timer")
    assert wait.spec.deadline.year == 2099
    story.run.resolve(second, "fired")
    assert await story.drive() == "completed"


async def test_a_sleep_that_is_over_before_the_run_parks_goes_straight_on(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(0)
        return End("awake")

    story = Story(agent_of(node))
    resolved: list[bool] = []

    def ring_early(point: str, tool: str) -> None:
        if point == "CP8" and not resolved:
            ((timer, _),) = story.waiting("timer")
            resolved.append(story.run.resolve(timer, "fired"))

    story._hit = ring_early  # type: ignore[method-assign]
    assert await story.drive() == "completed" and story.output == "awake"
    assert "RunParked" not in story.kinds()


@each_case(
    "wrong",
    [
        lambda ctx: ctx.sleep(),
        lambda ctx: ctx.sleep(1, until=datetime.now(UTC)),
        lambda ctx: ctx.sleep(until=datetime(2030, 1, 1)),
        lambda ctx: ctx.sleep(float("inf")),
    ],
)
async def test_a_sleep_that_makes_no_sense_is_said_so(wrong: Any) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            await wrong(ctx)
        return End("told")

    story = Story(agent_of(node))
    assert await story.drive() == "completed" and story.output == "told"


async def test_the_trace_and_the_run_are_known_to_node_and_tool(tools: Toolbox, outside: Outside) -> None:
    calls: list[Any] = []
    outside.trouble("order", calls.append)

    async def node(state: Notes, ctx: Context) -> End:
        ctx.log("about to order", item="a")
        await ctx.call(tools.order, Item(name="a"))
        return End([ctx.run_id, ctx.trace_id])

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "completed"
    assert story.output == [calls[0].run_id, calls[0].trace_id] == [story.run.id, "0" * 32]
    assert calls[0].slot == "0.1/1" and calls[0].attempt == 0 and calls[0].timeout == 5


# --- the remaining budget ---------------------------------------------------------------------------------------------


async def test_what_is_left_is_what_the_run_may_still_use(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        first = await ctx.budget()
        await ctx.call(tools.order, Item(name="a"))
        second = await ctx.budget()
        return End([[left.tool_calls, left.steps, left.usd_micro, left.model_calls] for left in (first, second)])

    story = Story(agent_of(node, tools=tools.all()), caps=Caps(tool_calls=3, usd_micro=5_000_000))
    assert await story.drive() == "completed"
    assert story.output == [[3, None, 5_000_000, None], [2, None, 5_000_000, None]]


async def test_without_caps_nothing_is_said_of_what_is_left() -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.budget() == Remaining())

    story = Story(agent_of(node))
    assert await story.drive() == "completed" and story.output is True


async def test_budget_left_is_the_same_on_replay_after_a_raise(tools: Toolbox, outside: Outside) -> None:
    seen: list[Any] = []

    async def node(state: Notes, ctx: Context) -> End:
        left = await ctx.budget()
        seen.append(left.tool_calls)
        for n in range(3 if left.tool_calls == 1 else 9):
            await ctx.call(tools.order, Item(name=str(n)))
        return End((await ctx.budget()).tool_calls)

    story = Story(agent_of(node, tools=tools.all()), caps=Caps(tool_calls=1), kill_at=[("CP2", "order")])
    assert await story.settle() == "paused"
    story.run.raise_budget(Caps(tool_calls=50))
    assert await story.settle() == "completed"
    assert len(seen) >= 3 and set(seen) == {1} and story.output == 47
    assert len(outside.requests) in (3, 4), "three calls, of which one was sent again under its key"


async def test_who_has_used_more_than_a_lowered_cap_has_nothing_left(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        for n in range(2):
            await ctx.call(tools.order, Item(name=str(n)))
        await ctx.sleep(3600)
        return End((await ctx.budget()).tool_calls)

    story = Story(agent_of(node, tools=tools.all()), caps=Caps(tool_calls=5))
    assert await story.drive() == "parked"
    story.run.raise_budget(Caps(tool_calls=1))
    assert await story.settle() == "completed" and story.output == 0


async def test_calls_at_once_see_what_is_set_aside_for_each_other(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.gather(*(ctx.call(tools.order, Item(name=str(n))) for n in range(3)))
        return End((await ctx.budget()).tool_calls)

    story = Story(agent_of(node, tools=tools.all()), caps=Caps(tool_calls=4))
    assert await story.drive() == "completed" and story.output == 1
