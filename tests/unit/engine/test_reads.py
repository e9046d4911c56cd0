from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durableagents import BusinessFailure, Context, End, Gate, ReplayClass, ToolCall, ToolFailure, tool
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.content.reads import MemoryReads
from runs.engine.errors import DefinitionError
from runs.engine.tools import Tool
from tests.unit.engine.story import Story
from tests.world import Done, Item, Notes, Outside, agent_of

HOUR = timedelta(hours=1)


def reading(outside: Outside, **more: Any) -> Tool:
    @tool(replay_class=ReplayClass.PURE, **({"cache": HOUR} | more))
    async def look(args: Item, call: ToolCall) -> Done:
        return outside.take("look", args, call)

    return look


def reader(look: Tool, *, name: str = "reader", max_age: timedelta | None = None, item: str = "a") -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(look, Item(name=item), max_age=max_age)).ref)
        except ToolFailure as failure:
            return End(failure.code)

    return agent_of(node, name=name, tools=[look])


async def test_another_run_takes_it_from_the_cache_and_the_record_says_so(outside: Outside) -> None:
    look, reads = reading(outside), MemoryReads()
    agent = reader(look)
    first, second = Story(agent, reads=reads), Story(agent, reads=reads)
    assert await first.settle() == await second.settle() == "completed"
    assert first.output == second.output == "look:a" and len(outside.requests) == 1
    (hit,) = second.events(e.CachedReadTaken)
    assert (hit.tool, hit.run_read, hit.slot_read) == ("look", first.run.id, first.events(e.ToolRead)[0].slot)
    assert hit.payload == {
        "arguments": {"name": "a", "amount": 1},
        "result": {"ref": "look:a", "amount": 0} | hit.payload["result"],
    }
    assert second.run.used.tool_calls == 1, "it counts as a call"


async def test_what_is_not_the_same_read_is_made(outside: Outside) -> None:
    """Other arguments, another agent, another tool of the name, and a tool that keeps nothing."""
    reads = MemoryReads()
    look = reading(outside)
    slower, forgetful = reading(outside, timeout=7.0), reading(outside, cache=None)
    agents = [
        reader(look),
        reader(look, name="other"),
        reader(look, name="third", item="b"),
        reader(slower, name="fourth"),
        reader(forgetful, name="fifth"),
    ]
    for agent in agents:
        story = Story(agent, reads=reads)
        assert await story.settle() == "completed" and not story.events(e.CachedReadTaken)
    assert len(outside.requests) == 5


async def test_a_shared_tool_is_read_once_for_all_agents(outside: Outside) -> None:
    reads, look = MemoryReads(), reading(outside, shared=True)
    for name in ("one", "two"):
        assert await Story(reader(look, name=name), reads=reads).settle() == "completed"
    assert len(outside.requests) == 1


async def test_a_changed_tool_is_not_the_same_to_anybody(outside: Outside) -> None:
    reads = MemoryReads()
    for name, look in (("one", reading(outside, shared=True)), ("two", reading(outside, shared=True, timeout=7.0))):
        assert await Story(reader(look, name=name), reads=reads).settle() == "completed"
    assert len(outside.requests) == 2


async def test_failures_and_what_is_too_large_are_not_kept(outside: Outside) -> None:
    reads, look = MemoryReads(), reading(outside)
    outside.trouble("look", BusinessFailure("no", code="no"))
    assert await Story(reader(look), reads=reads).settle() == "completed" and reads.kept == {}
    assert await Story(reader(look, name="big", item="x" * 300_000), reads=reads).settle() == "completed"
    assert reads.kept == {}


async def test_what_is_too_old_or_does_not_fit_is_a_miss(outside: Outside) -> None:
    reads, look = MemoryReads(), reading(outside)
    agent = reader(look, max_age=timedelta(minutes=5))
    assert await Story(agent, reads=reads).settle() == "completed"
    ((key, (kept, lifetime)),) = reads.kept.items()
    for worse in (
        replace(kept, at=kept.at - timedelta(minutes=6)),
        replace(kept, result={"ref": 7, "amount": "x"}),
        replace(kept, result=None),
    ):
        reads.kept = {key: (worse, timedelta(days=1))}
        story = Story(agent, reads=reads)
        assert await story.settle() == "completed" and story.output == "look:a" and story.events(e.ToolRead)
    reads.kept = {key: (replace(kept, at=kept.at - timedelta(minutes=4)), lifetime)}
    assert await (story := Story(agent, reads=reads)).settle() == "completed" and story.events(e.CachedReadTaken)
    assert len(outside.requests) == 4


async def test_a_gated_read_is_made_as_it_was_approved(outside: Outside) -> None:
    reads = MemoryReads()
    look = reading(outside, gate=Gate("finance_po", "always"))
    agent = reader(look)
    for _ in range(2):
        story = Story(agent, reads=reads)
        assert await story.settle() == "parked"
        story.decide()
        assert await story.settle() == "completed"
    assert len(outside.requests) == 2 and reads.kept == {}


async def test_a_hit_is_replayed_from_the_record_when_the_cache_has_forgotten_it(outside: Outside) -> None:
    reads, look = MemoryReads(), reading(outside)

    async def node(state: Notes, ctx: Context) -> End:
        got = (await ctx.call(look, Item(name="a"))).ref
        await ctx.sleep(0)
        return End(got)

    agent = agent_of(node, tools=[look])
    assert await Story(agent, reads=reads).settle() == "completed"
    story = Story(agent, reads=reads)
    assert await story.drive() == "parked"
    reads.kept.clear()
    assert await story.settle() == "completed" and story.output == "look:a" and len(outside.requests) == 1


# --- old reads --------------------------------------------------------------------------------------------------------


class Moody(Outside):
    def _serve(self, name: str, args: Item, call: ToolCall) -> Done:
        super()._serve(name, args, call)
        return Done(ref=f"{name} {len(self.requests)}")


def moody(look: Tool, *, max_age: timedelta | None, pause: bool) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        first = (await ctx.call(look, Item(name="a"), max_age=max_age)).ref
        if pause:
            await ctx.sleep(0)
        return End([first, (await ctx.call(look, Item(name="b"), max_age=max_age)).ref])

    return agent_of(node, tools=[look])


async def test_a_read_that_nothing_was_made_of_is_made_again_after_a_long_time() -> None:
    outside = Moody()
    look = reading(outside, cache=None)
    story = Story(moody(look, max_age=HOUR, pause=False), kill_at=[("CP6", "look")])
    assert await story.drive() == "killed"
    story.run.skew = timedelta(hours=2)
    story.kill_at = [("CP6", "look")]
    assert await story.drive() == "killed"
    (renewed,) = story.events(e.ToolReadAnew)
    assert (renewed.n, renewed.code, renewed.payload["result"]["ref"]) == (0, "", "look 2")
    assert await story.settle() == "completed" and story.output == ["look 2", "look 3"]
    assert story.run.used.tool_calls == 3
    again = Story(story.agent)
    again.run.id, again.run.events = story.run.id, []
    again.run.append(story.run.events[:-1])
    again.run.snapshots, again.run.skew = story.run.snapshots, timedelta(days=30)
    assert await again.settle() == "completed" and again.output == ["look 2", "look 4"], "what it was made of stands"


async def test_a_younger_read_or_one_that_something_was_made_of_stands() -> None:
    outside = Moody()
    look = reading(outside, cache=None)
    story = Story(moody(look, max_age=HOUR, pause=True))
    assert await story.drive() == "parked"
    story.run.skew = timedelta(days=3)
    assert await story.settle() == "completed" and story.output == ["look 1", "look 2"], "it went to sleep after it"
    assert story.events(e.ToolReadAnew) == []
    young = Story(moody(look, max_age=HOUR, pause=False), kill_at=[("CP6", "look")])
    assert await young.drive() == "killed"
    young.run.skew = timedelta(minutes=50)
    assert await young.settle() == "completed" and young.events(e.ToolReadAnew) == []


async def test_a_read_made_again_that_fails_is_the_outcome_and_may_be_retried() -> None:
    outside = Moody()
    look = reading(outside, cache=None)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(look, Item(name="a"), max_age=HOUR)).ref)

    story = Story(agent_of(node, tools=[look]), kill_at=[("CP6", "look")])
    assert await story.drive() == "killed"
    story.run.skew = timedelta(hours=2)
    outside.trouble("look", BusinessFailure("gone", code="gone"))
    assert await story.settle() == "failed" and story.failure.code == "gone"
    assert [(x.n, x.code) for x in story.events(e.ToolReadAnew)] == [(0, "gone")]
    story.retry_run()
    assert story.events(e.RunRetried)[0].reopened, "a definite failure is tried again"
    assert await story.settle() == "completed" and story.output == "look 2"


async def test_an_outage_while_it_is_read_again_is_waited_for() -> None:
    from durableagents import TransportError

    outside = Moody()
    look = reading(outside, cache=None)
    story = Story(moody(look, max_age=HOUR, pause=False), kill_at=[("CP6", "look")])
    assert await story.drive() == "killed"
    story.run.skew = timedelta(hours=2)
    outside.trouble("look", TransportError("away"), TransportError("away"))
    assert await story.settle() == "completed" and story.output == ["look 2", "look 3"]
    assert [x.wait for x in story.events(e.WaitOpened)].count("timer") == 2


async def test_only_a_read_can_be_asked_for_again(outside: Outside) -> None:
    @tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY)
    async def mail(args: Item, call: ToolCall) -> Done:
        return outside.take("mail", args, call)

    for wrong, age in ((mail, HOUR), (reading(outside), -HOUR)):

        async def node(state: Notes, ctx: Context, wrong: Tool = wrong, age: timedelta = age) -> End:
            return End(await ctx.call(wrong, Item(name="a"), max_age=age))

        story = Story(agent_of(node, tools=[wrong]))
        assert await story.settle() == "failed" and "max_age" in story.failure.payload["message"]
    assert outside.requests == []


def test_a_wrong_declaration_is_refused(outside: Outside) -> None:
    for wrong in (
        {"cache": 60},
        {"cache": timedelta(0)},
        {"cache": timedelta(days=8)},
        {"shared": True, "cache": None},
        {"replay_class": ReplayClass.IDEMPOTENT_WITH_KEY, "cache": HOUR},
    ):
        with pytest.raises(DefinitionError, match="look"):

            @tool(**({"replay_class": ReplayClass.PURE} | wrong))
            async def look(args: Item, call: ToolCall) -> Done:
                return outside.take("look", args, call)
