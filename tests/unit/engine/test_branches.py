"""`gather`: branches of calls at once, each with its own slots, that wait and return together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Assistant, BusinessFailure, Context, Rejected, ToolCall, ToolFailure
from ledger import events as e
from runs.engine.errors import MisusedContext
from tests.unit.engine.gathers import Meeting, gathering, ring, slots
from tests.unit.engine.story import Story
from tests.world import Done, Item, Outside, Toolbox


def _think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    call = (
        ToolCallPart("look", {"name": "t"}) if len(messages) == 1 else ToolCallPart("final_result", {"ref": "thought"})
    )
    return ModelResponse(parts=[call])


def thinker(tools: Toolbox) -> Assistant:
    return Assistant(name="thinker", instructions="Think.", output=Done, tools=[tools.look], offline=_think)


# --- at once, with separate slots ---


async def test_branches_run_at_once(tools: Toolbox, outside: Outside) -> None:
    together = Meeting(3)
    for name in ("look", "order", "mail"):
        outside.trouble(name, together.come)

    async def body(ctx: Context) -> Any:
        calls = (ctx.call(each, Item(name="a")) for each in (tools.look, tools.order, tools.mail))
        return [done.ref for done in await ctx.gather(*calls)]

    story = Story(gathering(tools, body))
    assert await asyncio.wait_for(story.drive(), 20) == "completed", "each waits for the others"
    assert story.output == ["look:a", "order:a", "mail:a"]


@pytest.mark.parametrize("is_first_slow", [True, False])
async def test_places_are_fixed_no_matter_who_is_faster(tools: Toolbox, outside: Outside, is_first_slow: bool) -> None:
    async def slow(call: ToolCall) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    outside.trouble("order" if is_first_slow else "hooked", slow)
    assistant = thinker(tools)

    async def left(ctx: Context) -> str:
        await ctx.call(tools.order, Item(name="l"))
        await ctx.random()
        inner = await ctx.gather(ctx.call(tools.look, Item(name="i")), ctx.uuid())
        return str(inner[0].ref)

    async def right(ctx: Context) -> str:
        await ctx.call(tools.hooked, Item(name="r"))
        return str((await ctx.think(assistant, "hm")).ref)

    async def body(ctx: Context) -> Any:
        await ctx.now()
        both = await ctx.gather(left(ctx), right(ctx))
        await ctx.call(tools.mail, Item(name="z"))
        return both

    story = Story(gathering(tools, body, [assistant]))
    assert await story.drive() == "completed" and story.output == ["look:i", "thought"]
    assert slots(story) == [
        ("1", "now"),
        ("2/0/1", "order"),
        ("2/0/2", "random"),
        ("2/0/3/0/1", "look"),
        ("2/0/3/1/1", "uuid"),
        ("2/1/1", "hooked"),
        ("2/1/2/0/0", ""),
        ("2/1/2/0/1", "look"),
        ("2/1/2/1/0", ""),
        ("3", "mail"),
    ]


async def test_results_keep_the_order_of_branches_on_replay(tools: Toolbox, outside: Outside) -> None:
    async def body(ctx: Context) -> Any:
        got = await ctx.gather(*(ctx.call(tools.order, Item(name=str(i))) for i in range(5)), ctx.random())
        await ctx.sleep(5)
        return [*(done.ref for done in got[:-1]), got[-1]]

    story = Story(gathering(tools, body), kill_at=[("CP8", "")])
    assert await story.settle() == "completed"
    assert story.output == [*(f"order:{i}" for i in range(5)), story.events(e.ValueRead)[0].payload]
    assert len(outside.requests) == 5 and len(story.events(e.BranchesOpened)) == 1


async def test_no_branches_are_no_results(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        return await ctx.gather()

    story = Story(gathering(tools, body))
    assert await story.drive() == "completed" and story.output == []


# --- exceptions ---


async def test_the_first_exception_in_order_is_raised_after_all_have_finished(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", BusinessFailure("no", code="first"))
    outside.trouble("hooked", BusinessFailure("never", code="second"))

    async def body(ctx: Context) -> Any:
        try:
            await ctx.gather(
                ctx.call(tools.mail, Item(name="a")),
                ctx.call(tools.order, Item(name="b")),
                ctx.call(tools.hooked, Item(name="c")),
            )
        except ToolFailure as failure:
            return [failure.code, len(outside.requests)]

    story = Story(gathering(tools, body))
    assert await story.drive() == "completed" and story.output == ["first", 1]
    assert sorted(story.facts()) == ["committed", "failed", "failed", "pending", "pending", "pending"]


async def test_exceptions_may_come_back_as_results(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", BusinessFailure("no", code="no"))

    async def oops(ctx: Context) -> None:
        raise KeyError("mine")

    async def body(ctx: Context) -> Any:
        got = await ctx.gather(
            ctx.call(tools.order, Item(name="a")),
            oops(ctx),
            ctx.call(tools.look, Item(name="b")),
            return_exceptions=True,
        )
        return [type(each).__name__ for each in got]

    story = Story(gathering(tools, body))
    assert await story.drive() == "completed" and story.output == ["ToolFailure", "KeyError", "Done"]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()], ids=["sys.exit", "a stray cancellation"])
async def test_a_branch_can_not_take_the_worker_down(tools: Toolbox, error: BaseException) -> None:
    async def oops(ctx: Context) -> None:
        raise error

    async def body(ctx: Context) -> Any:
        await ctx.gather(ctx.call(tools.order, Item(name="a")), oops(ctx))

    story = Story(gathering(tools, body))
    assert await story.drive() == "failed" and story.failure.code == "node_error"
    assert story.facts() == ["pending", "committed"]


async def test_only_coroutines_that_have_not_begun_can_be_branches(tools: Toolbox, outside: Outside) -> None:
    async def body(ctx: Context) -> Any:
        task = asyncio.create_task(asyncio.sleep(0))
        with pytest.raises(TypeError, match="coroutines that have not begun"):
            await ctx.gather(ctx.call(tools.order, Item(name="a")), task)  # type: ignore[arg-type]
        await task
        return "none began"

    story = Story(gathering(tools, body))
    assert await story.drive() == "completed" and outside.requests == []


async def test_a_task_that_a_branch_makes_is_still_a_stranger(tools: Toolbox, outside: Outside) -> None:
    """Its context names its branch, but its slot would depend on when it runs."""
    refused: list[BaseException] = []

    async def branch(ctx: Context) -> None:
        made = asyncio.create_task(ctx.call(tools.order, Item(name="a")))
        refused.extend(await asyncio.gather(made, return_exceptions=True))  # type: ignore[arg-type]

    async def body(ctx: Context) -> Any:
        await ctx.gather(branch(ctx), branch(ctx))
        with pytest.raises(MisusedContext):
            await asyncio.create_task(ctx.gather(ctx.call(tools.order, Item(name="b"))))

    story = Story(gathering(tools, body))
    assert await story.drive() == "completed"
    assert [type(error) for error in refused] == [MisusedContext] * 2 and outside.requests == []


async def test_a_call_belongs_to_the_branch_that_awaits_it(tools: Toolbox) -> None:
    """A coroutine made in one branch and awaited in another is the other's call."""

    async def body(ctx: Context) -> Any:
        made: list[Any] = []

        async def one() -> None:
            made.append(ctx.random())
            await ctx.call(tools.look, Item(name="one"))

        async def other() -> None:
            await ctx.call(tools.look, Item(name="other"))
            await made[0]

        await ctx.gather(one(), other())

    story = Story(gathering(tools, body))
    assert await story.drive() == "completed"
    assert slots(story) == [("1/0/1", "look"), ("1/1/1", "look"), ("1/1/2", "random")]


# --- waiting ---


async def test_any_wait_of_its_branches_wakes_a_run(tools: Toolbox, outside: Outside) -> None:
    async def paying(ctx: Context) -> str:
        paid = await ctx.call(tools.pay, Item(name="p", amount=5000))
        return str(paid.ref)

    async def napping(ctx: Context) -> str:
        await ctx.sleep(60)
        return str((await ctx.call(tools.look, Item(name="woke"))).ref)

    async def body(ctx: Context) -> Any:
        return [
            getattr(x, "ref", x)
            for x in await ctx.gather(
                paying(ctx), napping(ctx), ctx.call(tools.ask, Item(name="q")), ctx.call(tools.order, Item(name="o"))
            )
        ]

    story = Story(gathering(tools, body))
    assert await story.drive() == "parked" and story.run.state == "waiting_human"
    assert sorted(w.spec.kind for w in story.run.open_waits()) == ["approval", "timer", "webhook"]
    assert story.events(e.RunParked)[-1].waits == ["0.1/1/0/1", "0.1/1/1/1", "0.1/1/2/1"]
    assert sorted(r.tool for r in outside.requests) == ["ask", "order"], "branches without a wait went on"
    story.decide()
    assert await story.drive() == "parked" and story.run.state == "waiting_tool"
    assert story.events(e.RunParked)[-1].waits == ["0.1/1/1/1", "0.1/1/2/1"]
    story.call_back({"ref": "answered"})
    assert await story.drive() == "parked" and story.run.state == "waiting_event"
    ring(story)
    assert await story.drive() == "completed"
    assert story.output == ["pay:p", "look:woke", "answered", "order:o"]
    assert sorted(r.tool for r in outside.requests) == ["ask", "look", "order", "pay"]


async def test_a_branch_that_swallows_its_unwinding_still_waits(tools: Toolbox) -> None:
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.sleep(60)
        except BaseException:
            return "I go on"
        return "slept"

    async def body(ctx: Context) -> Any:
        return await ctx.gather(stubborn(ctx), ctx.random())

    story = Story(gathering(tools, body))
    assert await story.settle() == "completed" and story.output[0] == "slept"
    assert len(story.events(e.RunParked)) == 1


async def test_wait_resolved_by_then_prevents_parking(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", lambda call: ring(story), when="after")

    async def body(ctx: Context) -> Any:
        await ctx.gather(ctx.sleep(60), ctx.call(tools.order, Item(name="a")))
        return "through"

    story = Story(gathering(tools, body))
    assert await story.drive() == "completed" and story.output == "through"
    assert len(outside.requests) == 1


async def test_a_denied_gate_in_one_branch_waits_for_the_others(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        try:
            await ctx.gather(ctx.call(tools.pay, Item(name="a", amount=5000)), ctx.sleep(60))
        except Rejected as no:
            return no.reason

    story = Story(gathering(tools, body))
    assert await story.drive() == "parked"
    story.decide("rejected", "too dear")
    assert await story.drive() == "parked" and story.run.state == "waiting_event"
    assert await story.settle() == "completed" and story.output == "too dear"


# --- what a replay must find ---


@pytest.mark.parametrize(("then", "now"), [(2, 3), (3, 2), (2, 0)])
async def test_changed_branch_count_is_found(tools: Toolbox, outside: Outside, then: int, now: int) -> None:
    size = {"of": then}

    async def body(ctx: Context) -> Any:
        await ctx.gather(*(ctx.call(tools.order, Item(name=str(i))) for i in range(size["of"])))
        await ctx.sleep(1)

    story = Story(gathering(tools, body))
    assert await story.drive() == "parked"
    ring(story)
    size["of"] = now
    assert await story.drive() == "operator" and len(outside.requests) == then
    assert story.found.payload["recorded"]["call"] == f"gather of {then}"
    assert story.found.payload["now"]["call"] == f"gather of {now}"


async def test_a_call_of_unknown_outcome_in_a_branch_that_is_gone_is_not_passed_over(tools: Toolbox) -> None:
    does = {"mail": True}

    async def maybe(ctx: Context) -> None:
        if does["mail"]:
            await ctx.call(tools.mail, Item(name="a"))

    async def body(ctx: Context) -> Any:
        await ctx.gather(ctx.random(), maybe(ctx))

    story = Story(gathering(tools, body), kill_at=[("CP4", "mail")])
    assert await story.drive() == "killed"
    does["mail"] = False
    assert await story.drive() == "operator" and story.found.payload["slot"] == "0.1/1/1/1"


async def test_what_a_branch_read_is_on_disk_before_what_it_made_of_it(tools: Toolbox, outside: Outside) -> None:
    """Another branch's write with the value is refused: then the next write carries it, in any branch."""
    drawn: list[float] = []

    async def reader(ctx: Context) -> None:
        drawn.append(await ctx.random())
        story.run.is_pause_requested = len(drawn) == 1
        await ctx.call(tools.look, Item(name=f"{drawn[-1]}"))

    async def body(ctx: Context) -> Any:
        await ctx.gather(reader(ctx), ctx.call(tools.order, Item(name="b")))

    story = Story(gathering(tools, body))
    assert await story.drive() == "paused"
    assert [x.KIND for x in story.run.events if x.slot] == ["BranchesOpened", "ValueRead", "ToolRead"]
    assert await story.drive() == "completed"
    assert drawn[0] == drawn[1] == story.events(e.ValueRead)[0].payload and len(outside.seen("look")) == 1
