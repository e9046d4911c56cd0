"""A worker that has lost its registration begins nothing new and keeps what it has."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from durableagents import Context, End, ReplayClass, ToolCall, tool
from ledger import events as e
from runs.engine.halts import Halts
from runs.engine.journal import Batch, Reply
from runs.engine.memory import MemoryJournal
from runs.engine.runtime import Runtime
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import AT_ONCE, IN_PLACE, Done, Item, Notes, Outside, Toolbox, agent_of


@dataclass
class Fenced(Story):
    """`lost_at` is the (point, tool) where the worker's place is lost; `looks` checks later it is back."""

    lost_at: tuple[str, str] = ("", "")
    looks: int = 3
    _left: int = 0
    on_fenced: Callable[[], None] = lambda: None
    halts: Halts = field(default_factory=Halts)

    @property
    def runtime(self) -> Runtime:
        return replace(super().runtime, is_fenced=self._is_fenced, halts=self.halts)

    def _hit(self, point: str, tool: str) -> None:
        super()._hit(point, tool)
        if (point, tool) == self.lost_at:
            self.lost_at, self._left = ("", ""), self.looks

    def _is_fenced(self) -> bool:
        if not self._left:
            return False
        self._left -= 1
        self.on_fenced()
        return True


def calling(tools: Toolbox, name: str) -> Callable[..., object]:
    async def node(state: Notes, ctx: Context) -> End:
        first = await ctx.call(tools.look, Item(name="first"))
        return End([first.ref, (await ctx.call(getattr(tools, name), Item(name="a"))).ref])

    return node


@pytest.mark.parametrize("name", ["mail", "order", "look", "fax"])
async def test_fenced_worker_sends_nothing_after_its_intent(tools: Toolbox, outside: Outside, name: str) -> None:
    story = Fenced(agent_of(calling(tools, name), tools=tools.all()), retry=IN_PLACE, lost_at=("CP2", name))
    before = 0 if name == "look" else 1
    story.on_fenced = lambda: None if len(outside.seen()) == before else pytest.fail("it was sent")
    assert await story.settle() == "completed"
    assert [r.tool for r in outside.seen()] == ["look", name]
    unsafe = name in ("mail", "fax")
    assert len(story.events(e.ToolNotDispatched)) == unsafe and story.events(e.ToolOutcomeUnknown) == []


@pytest.mark.parametrize("name", ["mail", "order"])
async def test_it_looks_once_more_after_waiting_for_the_database(tools: Toolbox, outside: Outside, name: str) -> None:
    """Another worker may have sent the call while this one asked about halts."""

    class Slow(Halts):
        is_any_known, read_at = True, 0.0

        def is_about(self, key: str) -> bool:
            return True

        async def is_halted(self, run_id: str, key: str) -> bool:
            story._left = story.looks
            return False

    story = Fenced(agent_of(calling(tools, name), tools=tools.all()), retry=AT_ONCE, halts=Slow(), looks=1)
    assert await story.drive() == "parked" and [r.tool for r in outside.seen()] == []


async def test_a_blocking_call_looks_once_more_in_its_thread(outside: Outside) -> None:
    """It may have waited long for the thread."""
    sent: list[str] = []

    class LostMeanwhile(Fenced):
        def _is_fenced(self) -> bool:
            return threading.current_thread() is not threading.main_thread()

    @tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, timeout=20)
    def fax(args: Item, call: ToolCall) -> Done:
        sent.append(args.name)
        return Done(ref="faxed")

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(fax, Item(name="a"))).ref)

    story = LostMeanwhile(agent_of(node, tools=[fax]), retry=AT_ONCE)
    assert await story.drive() == "parked" and sent == []
    assert len(story.events(e.ToolNotDispatched)) == 1 and story.waiting("timer")


@pytest.mark.parametrize("name", ["mail", "order"])
async def test_no_intent_is_made_until_the_place_is_back(tools: Toolbox, outside: Outside, name: str) -> None:
    story = Fenced(agent_of(calling(tools, name), tools=tools.all()), lost_at=("CP6", "look"))
    story.on_fenced = lambda: None if story.events(e.ToolInvoked) == [] else pytest.fail("an intent was made")
    assert await story.settle() == "completed"
    assert [r.tool for r in outside.seen()] == ["look", name]


@each_case("name", ["mail", "order"])
async def test_an_answer_in_hand_is_committed_all_the_same(tools: Toolbox, name: str) -> None:
    story = Fenced(agent_of(calling(tools, name), tools=tools.all()), lost_at=("CP4", name))
    assert await story.settle() == "completed"
    assert story.facts() == ["pending", "committed"]


async def test_a_fenced_worker_still_hears_a_stop(tools: Toolbox) -> None:
    story = Fenced(agent_of(calling(tools, "order"), tools=tools.all()), lost_at=("CP6", "look"), looks=10**9)
    story.on_fenced = lambda: story.control.ask("drain")
    assert await asyncio.wait_for(story.drive(), 10) == "released"
    assert story.events(e.ToolInvoked) == []


async def test_fence_holds_up_an_intent_waiting_to_be_written(tools: Toolbox, outside: Outside) -> None:
    writing = asyncio.Event()

    class Slow(MemoryJournal):
        async def commit(self, batch: Batch) -> Reply:
            if any(isinstance(x, e.ToolRead) for x in batch.events):
                writing.set()
                await asyncio.sleep(0.05)  # the other branch waits for its turn meanwhile
                story._left = 3
            assert not (batch.is_intent and story._left), "an intent was made by a worker that others take for dead"
            return await super().commit(batch)

    async def ordering(ctx: Context) -> str:
        await writing.wait()
        return (await ctx.call(tools.order, Item(name="b"))).ref

    async def node(state: Notes, ctx: Context) -> End:
        seen, ordered = await ctx.gather(ctx.call(tools.look, Item(name="a")), ordering(ctx))
        return End([seen.ref, ordered])

    story = Fenced(agent_of(node, tools=tools.all()), journal=Slow)
    assert await story.settle() == "completed" and story.output == ["look:a", "order:b"]
