"""Blocking tools have thread quotas. A call that never got a thread was certainly not sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from durableagents import Context, End, ReplayClass, ToolCall, tool
from ledger import events as e
from runs.engine.limits import Limits, Permit, PermitRequest
from runs.engine.threads import ToolThreads
from runs.engine.tools import Tool
from tests.unit.engine.story import Begun, Story
from tests.waiting import eventually
from tests.world import AT_ONCE, IN_PLACE, Done, Item, Notes, agent_of


@pytest.fixture
def free() -> Iterator[threading.Event]:
    """Blocks hanging calls until set."""
    event = threading.Event()
    yield event
    event.set()


def blocking(name: str, sent: list[str], replay_class: ReplayClass, hangs: threading.Event | None = None) -> Tool:
    def function(args: Item, call: ToolCall) -> Done:
        sent.append(args.name)
        assert hangs is None or hangs.wait(60)
        return Done(ref=args.name)

    function.__name__ = name
    return tool(replay_class=replay_class, timeout=0.5)(function)


def calling(used: Tool, threads: ToolThreads) -> Story:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(used, Item(name="letter"))).ref)

    return Story(agent_of(node, tools=[used]), retry=AT_ONCE, threads=threads)


@pytest.mark.parametrize("replay_class", [ReplayClass.UNSAFE_ON_REPLAY, ReplayClass.IDEMPOTENT_WITH_KEY])
async def test_call_without_a_thread_has_not_left(free: threading.Event, replay_class: ReplayClass) -> None:
    threads, sent = ToolThreads(1), list[str]()
    threads.of("fax").submit(free.wait, 60)
    story = calling(blocking("fax", sent, replay_class), threads)
    assert await story.drive() == "parked"
    assert story.waiting("timer") and not story.waiting("reconcile") and not story.events(e.ToolOutcomeUnknown)
    assert len(story.events(e.ToolNotDispatched)) == 1
    free.set()
    for wait_id, _ in story.waiting("timer"):
        story.run.resolve(wait_id, "fired")
    assert await story.settle() == "completed"
    assert sent == ["letter"], "what queued did not begin when a thread came free"


async def test_calls_that_hang_hold_threads_of_their_own_tool_only(free: threading.Event) -> None:
    threads, hung = ToolThreads(2), list[str]()
    stuck = blocking("stuck", hung, ReplayClass.IDEMPOTENT_WITH_KEY, free)
    stories = [calling(stuck, threads) for _ in range(6)]
    assert await asyncio.gather(*(story.drive() for story in stories)) == ["parked"] * 6
    assert len(hung) == 2 and threads.abandoned() == {"stuck": 2}
    assert await calling(blocking("fax", [], ReplayClass.IDEMPOTENT_WITH_KEY), threads).drive() == "completed"
    late = calling(stuck, threads)
    began = asyncio.get_running_loop().time()
    assert await late.drive() == "parked", "its run frees its slot"
    assert asyncio.get_running_loop().time() - began < 0.5, "waiting for a thread would be pointless"
    ((_, wait),) = late.waiting("timer")
    assert "no thread was free for stuck: calls past their time limit occupy 2 of its 2" in wait.spec.detail["error"]
    free.set()
    eventually(lambda: not threads.abandoned(), what="the calls being over", seconds=10)
    for wait_id, _ in late.waiting("timer"):
        late.run.resolve(wait_id, "fired")
    assert await late.settle() == "completed"


async def test_a_call_that_has_begun_is_unknown(free: threading.Event) -> None:
    """Its thread runs on: nobody knows whether it still sends."""

    def slow(args: Item, call: ToolCall) -> Done:
        own.begun.set()
        free.wait(60)
        return Done(ref="late")

    slow_tool = tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, timeout=0.05)(slow)
    own = Begun(1)
    story = calling(slow_tool, own)
    assert await story.drive() == "parked" and story.waiting("reconcile")


class NewLimit(Limits):
    """A limit that comes in force later."""

    def __init__(self) -> None:
        self.is_in_force, self.back = False, list[Permit]()

    def is_known(self, key: str) -> bool:
        return self.is_in_force

    def needs_permit(self, keys: tuple[str, ...]) -> bool:
        return self.is_in_force

    async def take(self, keys: tuple[str, ...], asked: PermitRequest) -> Permit:
        return Permit("one", keys, is_held=True)

    def give_back(self, permit: Permit) -> None:
        self.back.append(permit)


async def test_a_hanging_try_does_not_hold_the_permit_of_the_next(free: threading.Event) -> None:
    limits, own, sent = NewLimit(), Begun(2), list[str]()

    def slow(args: Item, call: ToolCall) -> Done:
        sent.append(args.name)
        own.begun.set()
        if not limits.is_in_force:
            limits.is_in_force = True
            free.wait(60)
        return Done(ref="done")

    story = calling(tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, timeout=0.5)(slow), own)
    story.retry, story.limits = IN_PLACE, limits
    assert await story.drive() == "completed" and len(sent) == 2
    assert len(limits.back) == 1 and not free.is_set()
