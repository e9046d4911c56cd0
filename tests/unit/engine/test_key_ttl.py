from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Context, DidNotHappen, End, Happened, NotSent, ReplayClass, ToolCall, TransportError, tool
from ledger import events as e
from runs.engine.errors import DefinitionError
from runs.engine.journal import Batch, Reply
from runs.engine.memory import MemoryJournal
from runs.engine.runtime import RetryPolicy
from runs.engine.tools import Tool
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import AT_ONCE, Done, Item, Notes, Outside, agent_of

TTL = timedelta(hours=24)


def forgetful(outside: Outside, *, has_hook: bool = False) -> Tool:
    async def ask(args: Item, call: ToolCall) -> Any:
        return outside.hook(args, call) if outside.hook else None

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, key_ttl=TTL, timeout=5, reconcile=ask if has_hook else None)
    async def order(args: Item, call: ToolCall) -> Done:
        """Orders, on a system that forgets keys after a day."""
        return await outside.take_async("order", args, call)

    return order


def story_of(order: Tool, **more: Any) -> Story:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(order, Item(name="a"))).ref)

    return Story(agent_of(node, tools=[order]), **more)


@pytest.mark.parametrize("point", ["CP2", "CP4"])
async def test_in_time_it_is_repeated_and_too_late_a_person_is_asked(outside: Outside, point: str) -> None:
    for passed, how in ((TTL - timedelta(minutes=5), "completed"), (TTL, "parked")):
        outside.requests.clear()
        story = story_of(forgetful(outside), kill_at=[(point, "order")])
        assert await story.drive() == "killed"
        before = len(outside.requests)
        story.run.skew = passed
        assert await story.drive() == how
        assert len(outside.requests) == before + (how == "completed")
        assert [x.is_sender_done for x in story.events(e.ToolOutcomeUnknown)] == ([] if how == "completed" else [False])


async def test_someone_who_says_that_it_did_not_happen_sends_it_under_a_key_of_its_own(outside: Outside) -> None:
    story = story_of(forgetful(outside), kill_at=[("CP2", "order")])
    await story.drive()
    story.run.skew = 2 * TTL
    assert await story.drive() == "parked"
    story.reconcile("did_not")
    assert await story.drive() == "completed"
    first, second = (x.payload["key"] for x in story.events(e.ToolInvoked))
    assert first != second and [r.key for r in outside.requests] == [second]


@pytest.mark.parametrize(
    "answer", [Happened(Done(ref="found")), DidNotHappen(), None], ids=["happened", "did_not", "unknown"]
)
async def test_the_hook_is_asked_first(outside: Outside, answer: Any) -> None:
    outside.hook = lambda args, call: answer
    story = story_of(forgetful(outside, has_hook=True), kill_at=[("CP2", "order")])
    await story.drive()
    story.run.skew = 2 * TTL
    how = await story.drive()
    assert how == ("parked" if answer is None else "completed")
    assert len(outside.requests) == isinstance(answer, DidNotHappen)


async def test_retries_in_place_stop_where_the_key_ends(outside: Outside) -> None:
    story = story_of(forgetful(outside), retry=RetryPolicy(first=0.0, longest=0.0, in_place=60.0))

    def a_day_later(call: ToolCall) -> None:
        story.run.skew += TTL / 2
        raise TransportError("no answer")

    outside.trouble("order", *[a_day_later] * 5)
    assert await story.drive() == "parked"
    assert len(outside.requests) == 0 and story.run.skew == TTL
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert unknown.is_sender_done and "key's lifetime" in unknown.payload["reason"]


async def test_a_retry_timer_that_outlasts_the_key_asks_too(outside: Outside) -> None:
    story = story_of(forgetful(outside), retry=AT_ONCE)
    outside.trouble("order", TransportError("no answer"))
    assert await story.drive() == "parked"
    story.run.skew = TTL
    for wait_id, _ in story.waiting("timer"):
        story.run.resolve(wait_id, "fired")
    assert await story.drive() == "parked"
    assert len(story.waiting("reconcile")) == 1 and outside.requests == []


async def test_a_key_lives_from_when_it_is_first_sent(outside: Outside) -> None:
    """Every try before the outage failed before it was sent, so nobody is asked whether it happened."""
    story = story_of(forgetful(outside), retry=AT_ONCE)
    outside.trouble("order", NotSent("refused"), NotSent("refused"))
    for _ in range(2):
        assert await story.drive() == "parked"
        story.run.skew += TTL
        for wait_id, _ in story.waiting("timer"):
            story.run.resolve(wait_id, "fired")
    assert await story.drive() == "completed"
    assert len(outside.executed("order")) == 1 and not story.waiting("reconcile")


async def test_an_intent_that_does_not_say_when_it_was_made_counts_as_too_old(outside: Outside) -> None:
    """As from a version of the agent whose keys had no lifetime."""
    eternal = forgetful(outside)
    object.__setattr__(eternal, "key_ttl", None)
    story = story_of(eternal, kill_at=[("CP2", "order")])
    await story.drive()
    object.__setattr__(eternal, "key_ttl", TTL)
    assert await story.drive() == "parked" and outside.requests == []


@each_case(
    ("replay_class", "ttl"),
    [(ReplayClass.PURE, TTL), (ReplayClass.UNSAFE_ON_REPLAY, TTL), (ReplayClass.IDEMPOTENT_WITH_KEY, timedelta(0))],
)
def test_only_a_keyed_tool_has_a_lifetime_of_keys_and_a_positive_one(replay_class: ReplayClass, ttl: timedelta) -> None:
    with pytest.raises(DefinitionError, match="key_ttl"):

        @tool(replay_class=replay_class, key_ttl=ttl)
        async def order(args: Item, call: ToolCall) -> Done:
            """Orders."""
            return Done(ref="x")


class SlowToAnnounce(MemoryJournal):
    """Keeps the database away for longer than keys live, just when a repeat is announced or looked up."""

    async def commit(self, batch: Batch) -> Reply:
        if any(isinstance(x, e.ToolRedispatched) for x in batch.events):
            self.run.skew += TTL
        return await super().commit(batch)


class SlowToLookUp(MemoryJournal):
    async def may_repeat(self, slot: str, attempt: int, key: str = "", *, judged: int | None = None) -> Any:
        self.run.skew += TTL
        return await super().may_repeat(slot, attempt, judged=judged)


@pytest.mark.parametrize("journal", [SlowToAnnounce, SlowToLookUp])
async def test_key_that_expires_during_an_outage_is_not_used(outside: Outside, journal: type[MemoryJournal]) -> None:
    story = story_of(forgetful(outside), retry=RetryPolicy(first=0.0, longest=0.0, in_place=60.0), journal=journal)
    outside.trouble("order", *[TransportError("no answer")] * 2, when="after")
    assert await story.drive() == "parked"
    assert len(outside.requests) == (1 if journal is SlowToAnnounce else 2)
    assert len(story.waiting("reconcile")) == 1


async def test_a_resumed_repeat_is_held_to_it_too(outside: Outside) -> None:
    story = story_of(forgetful(outside), kill_at=[("CP4", "order")], journal=SlowToAnnounce)
    assert await story.drive() == "killed"
    assert await story.drive() == "parked"
    assert len(outside.requests) == 1 and len(story.waiting("reconcile")) == 1


async def test_a_blocking_try_that_timed_out_may_still_be_sending(outside: Outside) -> None:
    """However the tries after it ended."""
    began, over = threading.Event(), threading.Event()

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, key_ttl=TTL, timeout=0.05)
    def order(args: Item, call: ToolCall) -> Done:
        """Orders, blocking."""
        if not began.is_set():
            began.set()
            over.wait(10)
            return Done(ref="late")
        story.run.skew += TTL
        raise TransportError("no answer")

    story = story_of(order, retry=RetryPolicy(first=0.0, longest=0.0, in_place=60.0))
    try:
        assert await story.drive() == "parked"
    finally:
        over.set()
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert unknown.is_sender_done is False
