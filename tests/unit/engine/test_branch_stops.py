from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durableagents import BusinessFailure, Context, NotSent, ToolCall, ToolFailure
from ledger import events as e
from ledger.errors import StaleLease
from runs.engine.runtime import RetryPolicy
from tests.unit.engine.gathers import Meeting, gathering
from tests.unit.engine.story import Story
from tests.world import Item, Outside, Toolbox


async def test_a_pause_lets_what_is_in_flight_be_recorded_and_begins_nothing(tools: Toolbox, outside: Outside) -> None:
    met, event = Meeting(2), asyncio.Event()

    async def ask(call: ToolCall) -> None:
        await met.come(call)
        story.run.is_pause_requested = True
        event.set()

    async def answer(call: ToolCall) -> None:
        await met.come(call)
        await event.wait()

    outside.trouble("order", ask)
    outside.trouble("mail", answer)

    async def two(ctx: Context, first: Any) -> str:
        await ctx.call(first, Item(name="1"))
        return str((await ctx.call(tools.hooked, Item(name="2"))).ref)

    async def body(ctx: Context) -> Any:
        return await ctx.gather(two(ctx, tools.order), two(ctx, tools.mail))

    story = Story(gathering(tools, body))
    assert await story.drive() == "paused"
    assert sorted(story.facts()) == ["committed", "committed", "pending", "pending"]
    assert sorted(r.tool for r in outside.requests) == ["mail", "order"]
    assert await story.drive() == "completed" and story.output == ["hooked:2", "hooked:2"]
    assert len(outside.requests) == 4


async def test_a_bug_in_one_branch_lets_the_others_answer_be_recorded(tools: Toolbox, outside: Outside) -> None:
    broke = asyncio.Event()

    async def break_(call: ToolCall) -> None:
        broke.set()
        raise ZeroDivisionError

    async def wait(call: ToolCall) -> None:
        await broke.wait()
        for _ in range(10):
            await asyncio.sleep(0)

    outside.trouble("order", break_)
    outside.trouble("mail", wait)

    async def two(ctx: Context) -> None:
        await ctx.call(tools.mail, Item(name="1"))
        await ctx.call(tools.hooked, Item(name="never"))

    async def body(ctx: Context) -> Any:
        await ctx.gather(two(ctx), ctx.call(tools.order, Item(name="2")))

    story = Story(gathering(tools, body))
    assert await story.drive() == "failed" and story.failure.code == "tool_error"
    assert story.facts("0.1/1/0/1") == ["pending", "committed"]
    assert sorted(r.tool for r in outside.requests) == ["mail"], (
        "the bug came before anything left, and nothing came after"
    )


async def test_another_branch_gives_up_trying_again_when_one_stops_the_run(tools: Toolbox, outside: Outside) -> None:
    async def break_(call: ToolCall) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    outside.trouble("look", *[NotSent("away")] * 1000)
    outside.trouble("order", break_)

    async def body(ctx: Context) -> Any:
        await ctx.gather(ctx.call(tools.look, Item(name="1")), ctx.call(tools.order, Item(name="2")))

    story = Story(gathering(tools, body), retry=RetryPolicy(first=3600, longest=3600, in_place=1e9))
    assert await asyncio.wait_for(story.drive(), 20) == "failed" and story.failure.code == "tool_error"


async def test_the_strongest_reason_to_stop_stands(tools: Toolbox, outside: Outside) -> None:
    """One branch stops for a pause while the other's call fails: the run has failed, in either order."""

    async def break_late(call: ToolCall) -> None:
        begun.set()
        await stopping.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert story.facts("0.1/1/0/1") == ["pending", "committed"]
        raise ZeroDivisionError

    async def pause(call: ToolCall) -> None:
        await begun.wait()
        story.run.is_pause_requested = True
        stopping.set()

    begun, stopping = asyncio.Event(), asyncio.Event()

    outside.trouble("order", pause)
    outside.trouble("hooked", break_late)

    async def body(ctx: Context) -> Any:
        await ctx.gather(ctx.call(tools.order, Item(name="x")), ctx.call(tools.hooked, Item(name="y")))

    story = Story(gathering(tools, body))
    assert await story.drive() == "failed" and story.failure.code == "tool_error"


async def test_a_lost_lease_ends_every_branch_and_nobody_writes_any_more(tools: Toolbox, outside: Outside) -> None:
    """Their calls return after another worker has claimed the run, and can't be written."""
    met, over = Meeting(3), asyncio.Event()

    async def hold(call: ToolCall) -> None:
        await met.come(call)
        await over.wait()

    for name in ("order", "mail", "hooked"):
        outside.trouble(name, hold, when="after")

    async def one(ctx: Context, which: Any) -> None:
        await ctx.call(which, Item(name="1"))
        await ctx.call(tools.look, Item(name="after"))

    async def body(ctx: Context) -> Any:
        await ctx.gather(*(one(ctx, each) for each in (tools.order, tools.mail, tools.hooked)))
        return "done"

    story = Story(gathering(tools, body))
    zombie = asyncio.create_task(story.drive())
    await asyncio.wait_for(met.full.wait(), 20)
    story.run.claim()
    before = list(story.run.events)
    over.set()
    with pytest.raises(StaleLease):
        await zombie
    assert story.run.events == before and outside.seen("look") == []
    assert await story.drive() == "parked" and story.waiting("reconcile")  # a person settles the unsafe one
    story.reconcile("happened", receipt={"ref": "mail:1"})
    assert await story.drive() == "completed"
    assert len(outside.executed("mail")) == 1 and len(outside.executed()) == 3


async def test_a_drain_cut_off_at_its_deadline_ends_every_branch(tools: Toolbox, outside: Outside) -> None:
    met = Meeting(2)
    ended: list[str] = []

    async def hang(call: ToolCall) -> None:
        try:
            await met.come(call)
            await asyncio.Event().wait()
        finally:
            ended.append(call.tool)

    outside.trouble("order", hang)
    outside.trouble("mail", hang)

    async def body(ctx: Context) -> Any:
        await ctx.gather(ctx.call(tools.order, Item(name="a")), ctx.call(tools.mail, Item(name="b")))

    story = Story(gathering(tools, body))
    driving = asyncio.create_task(story.drive())
    await asyncio.wait_for(met.full.wait(), 20)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert sorted(ended) == ["mail", "order"]
    assert story.facts() == ["pending", "pending"], "both are in doubt, and the next worker finds that"


async def test_a_node_that_cuts_a_gather_short_can_not_go_on(tools: Toolbox, outside: Outside) -> None:
    async def body(ctx: Context) -> Any:
        async def forever() -> None:
            await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ctx.gather(forever(), forever())
        return "as if nothing had happened"

    story = Story(gathering(tools, body))
    assert await story.drive() == "failed" and story.failure.code == "cut_call"


async def test_a_cancel_settles_every_call_of_unknown_outcome(tools: Toolbox, outside: Outside) -> None:
    async def body(ctx: Context) -> Any:
        await ctx.gather(*(ctx.call(each, Item(name="a")) for each in (tools.mail, tools.fax, tools.ring, tools.order)))

    story = Story(gathering(tools, body), kill_at=[("CP4", "order")])
    met = Meeting(0)
    outside.trouble("mail", met.come, when="after")
    outside.trouble("ring", met.come)
    assert await story.drive() == "killed"
    in_doubt = {entry.tool for entry in story.run.entries} - {
        x.tool for x in story.run.entries if x.fact == "committed"
    }
    assert {"mail", "ring", "order"} <= in_doubt
    story.run.is_cancel_requested = True
    assert await story.drive() == "parked"
    question = story.waiting("reconcile")
    assert len(question) == len(in_doubt)
    assert sorted(story.events(e.RunParked)[-1].waits) == sorted(w.spec.slot for _, w in question)
    for n, (_, wait) in enumerate(question, start=1):
        story.reconcile("happened", receipt={"ref": "x"}, slot=wait.spec.slot)
        assert await story.drive() == ("cancelled" if n == len(question) else "parked")
    assert story.run.open_waits() == []


# --- retrying a failed run ---


async def test_retry_reopens_the_last_failure_of_each_branch(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("hooked", BusinessFailure("no", code="gone on from"))
    outside.trouble("order", BusinessFailure("no", code="one"))
    outside.trouble("look", BusinessFailure("no", code="two"))

    async def left(ctx: Context) -> str:
        try:
            await ctx.call(tools.hooked, Item(name="h"))
        except ToolFailure:
            await ctx.call(tools.mail, Item(name="sorry"))
        return str((await ctx.call(tools.order, Item(name="o"))).ref)

    async def body(ctx: Context) -> Any:
        done = await ctx.gather(left(ctx), ctx.call(tools.look, Item(name="l")), ctx.call(tools.fax, Item(name="f")))
        return [getattr(each, "ref", each) for each in done]

    story = Story(gathering(tools, body))
    assert await story.drive() == "failed" and story.failure.code == "one"
    story.retry_run()
    assert sorted(story.events(e.RunRetried)[-1].reopened) == ["0.1/1/0/3", "0.1/1/1/1"]
    assert await story.drive() == "completed" and story.output == ["order:o", "look:l", "fax:f"]
    assert sorted(r.tool for r in outside.requests) == ["fax", "look", "mail", "order"]


async def test_a_failure_before_a_gather_with_an_effect_is_past(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", BusinessFailure("no", code="first"))

    async def body(ctx: Context) -> Any:
        try:
            await ctx.call(tools.order, Item(name="o"))
        except ToolFailure:
            pass
        await ctx.gather(ctx.call(tools.mail, Item(name="m")), ctx.random())
        raise RuntimeError("later")

    story = Story(gathering(tools, body))
    assert await story.drive() == "failed"
    story.retry_run()
    assert story.events(e.RunRetried)[-1].reopened == []


async def test_branch_keeps_its_reads_when_another_is_refused(tools: Toolbox, outside: Outside) -> None:
    """A write carries the values of all branches so far. A refused one returns them, since a call may use one."""
    in_flight, refused = asyncio.Event(), asyncio.Event()

    async def hold(call: ToolCall) -> None:
        in_flight.set()
        await refused.wait()

    outside.trouble("look", hold)

    async def reading(ctx: Context) -> float:
        drawn = await ctx.random()
        await ctx.call(tools.look, Item(name=str(drawn)))
        return drawn

    async def writing(ctx: Context) -> str:
        await in_flight.wait()
        story.run.is_pause_requested = not refused.is_set()
        try:
            return str((await ctx.call(tools.order, Item(name="o"))).ref)
        finally:
            refused.set()

    async def body(ctx: Context) -> Any:
        return await ctx.gather(reading(ctx), writing(ctx))

    story = Story(gathering(tools, body))
    assert await story.drive() == "paused"
    assert len(outside.seen("look")) == 1 and not outside.seen("order")
    assert await story.drive() == "completed", story.events(e.OperatorNeeded)
    assert story.output == [float(outside.seen("look")[0].body.split('"name": "')[1].split('"')[0]), "order:o"]
    assert len(outside.seen("look")) == 1
