from __future__ import annotations

import threading
from typing import Any

import pytest

from durableagents import Context, DidNotHappen, End, Happened, KeyRejected, ReplayClass, ToolCall, TransportError, tool
from ledger import events as e
from runs.engine.threads import ToolThreads
from tests.unit.engine.story import Story
from tests.unit.engine.test_troubles import one_call
from tests.world import AT_ONCE, IN_PLACE, Done, Item, Notes, Outside, Toolbox, agent_of

REJECTED = KeyRejected("this key was used with another body", details={"status": 422})


async def rejected(tools: Toolbox, outside: Outside, name: str = "order", **more: Any) -> Story:
    """Return a run whose call is done, its answer lost, and its repeat's key rejected."""
    outside.trouble(name, TransportError("cut"), when="after")
    outside.trouble(name, REJECTED)
    story = Story(one_call(tools, name), retry=IN_PLACE, **more)
    assert await story.settle() == "parked"
    return story


async def test_rejected_key_asks_about_a_suspected_duplicate(tools: Toolbox, outside: Outside) -> None:
    story = await rejected(tools, outside)
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert unknown.is_sender_done
    assert unknown.payload["key_rejected"] == {
        "message": "this key was used with another body",
        "details": {"status": 422},
        "found_by_hook": "no answer",
    }
    assert "duplicate is suspected" in unknown.payload["reason"]
    assert story.facts() == ["pending", "unknown"] and not story.events(e.ToolFailed)
    _, wait = story.one_waiting("reconcile")
    assert wait.spec.detail["reason"] == "key_rejected" and wait.spec.detail["suspicion"] == "duplicate"
    assert wait.spec.detail["said"] == "this key was used with another body"


@pytest.mark.parametrize("point", ["CP2", "CP4", "CP8"])
async def test_new_key_needs_a_persons_word_after_any_death(tools: Toolbox, outside: Outside, point: str) -> None:
    outside.trouble("order", REJECTED, *[REJECTED] * 3)
    story = Story(one_call(tools, "order"), retry=AT_ONCE, kill_at=[(point, "" if point == "CP8" else "order")])
    assert await story.settle() == "parked"
    assert await story.settle() == "parked" and len(story.events(e.ToolOutcomeUnknown)) == 1
    assert len({x.payload["key"] for x in story.events(e.ToolInvoked)}) == 1 and outside.executed() == []


async def test_it_happened_is_the_result(tools: Toolbox, outside: Outside) -> None:
    story = await rejected(tools, outside)
    story.reconcile("happened", receipt={"ref": "found in the books"})
    assert await story.settle() == "completed" and story.output == "found in the books"
    assert len(outside.executed("order")) == 1


async def test_it_did_not_is_a_further_attempt_under_its_own_key(tools: Toolbox, outside: Outside) -> None:
    story = await rejected(tools, outside)
    story.reconcile("did_not")
    assert await story.settle() == "completed" and story.output == "order:a"
    keys = [x.payload["key"] for x in story.events(e.ToolInvoked)]
    assert len(set(keys)) == 2 and [r.key for r in outside.seen("order")] == keys


async def test_a_further_key_that_is_rejected_too_is_asked_about_again(tools: Toolbox, outside: Outside) -> None:
    story = await rejected(tools, outside)
    outside.trouble("order", REJECTED)
    story.reconcile("did_not")
    assert await story.settle() == "parked"
    assert [x.attempt for x in story.events(e.ToolOutcomeUnknown)] == [0, 1]


async def test_after_fail_the_run_a_retry_asks_again_and_still_says_why(tools: Toolbox, outside: Outside) -> None:
    story = await rejected(tools, outside)
    story.reconcile("fail")
    story.run.state = "failed"
    story.retry_run()
    assert await story.settle() == "parked"
    _, wait = story.one_waiting("reconcile")
    assert wait.spec.n == 1 and wait.spec.detail["suspicion"] == "duplicate"
    assert len(outside.seen("order")) == 1


async def test_the_hook_is_asked_first_and_what_it_finds_is_the_result(tools: Toolbox, outside: Outside) -> None:
    outside.hook = lambda args, call: Happened(Done(ref="found"))
    outside.trouble("hooked", REJECTED)
    story = Story(one_call(tools, "hooked"), retry=IN_PLACE)
    assert await story.settle() == "completed" and story.output == "found"
    assert story.facts() == ["pending", "reconciled"]


async def test_a_hook_that_finds_nothing_does_not_let_another_key_be_made(tools: Toolbox, outside: Outside) -> None:
    outside.hook = lambda args, call: DidNotHappen()
    outside.trouble("hooked", REJECTED)
    story = Story(one_call(tools, "hooked"), retry=IN_PLACE)
    assert await story.settle() == "parked"
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert unknown.payload["key_rejected"]["found_by_hook"] == "no effect"
    assert outside.executed("hooked") == []


async def test_of_an_unsafe_call_it_is_the_same_suspicion(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("mail", REJECTED)
    story = Story(one_call(tools, "mail"), retry=IN_PLACE)
    assert await story.settle() == "parked"
    assert story.one_waiting("reconcile")[1].spec.detail["reason"] == "key_rejected"


async def test_a_tool_that_only_reads_has_no_key_that_could_be_rejected(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("look", REJECTED)
    story = Story(one_call(tools, "look"), retry=IN_PLACE)
    assert await story.settle() == "failed"
    assert story.failure.code == "tool_error" and "KeyRejected" in story.failure.payload["message"]


async def test_returned_it_means_what_it_means_raised_and_what_it_says_needs_no_care(outside: Outside) -> None:
    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY)
    async def careless(args: Item, call: ToolCall) -> Done:
        return KeyRejected("half a pair \ud800" + "x" * 5000, details={1: object()})  # type: ignore[return-value]

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(careless, Item(name="a"))).ref)

    story = Story(agent_of(node, tools=[careless]))
    assert await story.settle() == "parked"
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert (
        len(unknown.payload["key_rejected"]["message"]) == 2000
        and "object" in unknown.payload["key_rejected"]["details"]
    )


async def test_a_try_that_may_still_be_sending_is_not_called_done(outside: Outside) -> None:
    over, calls = threading.Event(), []

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, timeout=0.2)
    def slow(args: Item, call: ToolCall) -> Done:
        calls.append(call.key)
        if len(calls) == 1:
            over.wait(10)
        raise KeyRejected("unknown key")

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(slow, Item(name="a"))).ref)

    story = Story(agent_of(node, tools=[slow]), retry=IN_PLACE, threads=ToolThreads(2))
    try:
        assert await story.settle() == "parked"
    finally:
        over.set()
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert not unknown.is_sender_done and calls[0] == calls[1]
