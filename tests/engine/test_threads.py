"""A blocking tool takes a thread. A call that never got one was not sent, and that is known."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from durableagents import Context, End, ReplayClass, ToolCall, tool
from ledger import events as e
from runs.engine.tools import Tool
from tests.engine.story import Begun, Story
from tests.world import AT_ONCE, Done, Item, Notes, agent_of


@pytest.fixture
def held() -> Iterator[tuple[ThreadPoolExecutor, threading.Event]]:
    """A pool whose only thread is taken by somebody who hangs until the event is set."""
    free, pool = threading.Event(), ThreadPoolExecutor(1)
    pool.submit(free.wait, 60)
    yield pool, free
    free.set()
    pool.shutdown()


def faxing(sent: list[str], replay_class: ReplayClass) -> Tool:
    def fax(args: Item, call: ToolCall) -> Done:
        sent.append(args.name)
        return Done(ref=args.name)

    return tool(replay_class=replay_class, timeout=0.5)(fax)


@pytest.mark.parametrize("replay_class", [ReplayClass.UNSAFE_ON_REPLAY, ReplayClass.IDEMPOTENT_WITH_KEY])
async def test_a_call_that_got_no_thread_in_its_time_is_known_not_to_have_left(
    held: tuple[ThreadPoolExecutor, threading.Event], replay_class: ReplayClass
) -> None:
    pool, free = held
    sent: list[str] = []
    fax = faxing(sent, replay_class)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(fax, Item(name="letter"))).ref)

    story = Story(agent_of(node, tools=[fax]), retry=AT_ONCE, threads=pool)
    assert await story.drive() == "parked"
    assert story.waiting("timer") and not story.waiting("reconcile") and not story.events(e.ToolOutcomeUnknown)
    assert len(story.events(e.ToolNotDispatched)) == (replay_class is ReplayClass.UNSAFE_ON_REPLAY)
    free.set()
    for wait_id, _ in story.waiting("timer"):
        story.run.resolve(wait_id, "fired")
    story.threads = ThreadPoolExecutor(1)
    assert await story.settle() == "completed"
    pool.shutdown(wait=True)
    assert sent == ["letter"], "what queued did not begin when a thread came free"


async def test_a_call_that_has_begun_is_unknown(held: tuple[ThreadPoolExecutor, threading.Event]) -> None:
    """Its thread runs on: nobody knows whether it still sends."""
    _, free = held

    def slow(args: Item, call: ToolCall) -> Done:
        own.begun.set()
        free.wait(60)
        return Done(ref="late")

    slow_tool = tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, timeout=0.05)(slow)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(slow_tool, Item(name="letter"))).ref)

    own = Begun(1)
    story = Story(agent_of(node, tools=[slow_tool]), threads=own)
    assert await story.drive() == "parked" and story.waiting("reconcile")
    free.set()
    own.shutdown()
