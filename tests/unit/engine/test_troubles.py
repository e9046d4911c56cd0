from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from durableagents import BusinessFailure, Context, End, NotSent, Pending, ReplayClass, ToolCall, TransportError, tool
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.errors import ToolFailure
from runs.engine.runtime import RetryPolicy
from tests.cases import each_case
from tests.unit.engine.story import Begun, Story
from tests.world import AT_ONCE, IN_PLACE, Item, Notes, Outside, Toolbox, agent_of

EVERY = ["look", "order", "mail"]


def one_call(tools: Toolbox, name: str) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(getattr(tools, name), Item(name="a"))).ref)
        except ToolFailure as failure:
            return End([failure.code, failure.message, failure.details])

    return agent_of(node, tools=tools.all())


@pytest.mark.parametrize("tool", EVERY)
async def test_what_was_not_sent_is_sent_again_whatever_the_class(tools: Toolbox, outside: Outside, tool: str) -> None:
    outside.trouble(tool, NotSent("refused"), NotSent("refused"))
    story = Story(one_call(tools, tool), retry=IN_PLACE)
    assert await story.drive() == "completed"
    assert len(outside.seen(tool)) == 1 and story.output == f"{tool}:a"
    if tool == "mail":
        assert [event.n for event in story.events(e.ToolNotDispatched)] == [1, 2]
    assert story.facts() == ([] if tool == "look" else ["pending", "committed"])


@pytest.mark.parametrize("error", [TransportError("no answer"), TimeoutError()])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("tool", ["look", "order"])
async def test_repeat_has_the_same_key(
    tools: Toolbox, outside: Outside, tool: str, when: Any, error: Exception
) -> None:
    outside.trouble(tool, error, error, when=when)
    story = Story(one_call(tools, tool), retry=IN_PLACE)
    assert await story.drive() == "completed"
    assert len({(r.key, r.body) for r in outside.seen(tool)}) == 1
    assert len(outside.executed(tool)) == (tool == "order")


@pytest.mark.parametrize("error", [TransportError("no answer"), TimeoutError(), KeyError("a bug")])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_lost_unsafe_answer_is_unknown(tools: Toolbox, outside: Outside, when: Any, error: Exception) -> None:
    outside.trouble("mail", error, when=when)
    story = Story(one_call(tools, "mail"), retry=IN_PLACE)
    assert await story.settle() == "parked"
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert unknown.is_sender_done and type(error).__name__ in unknown.payload["reason"]
    assert story.facts() == ["pending", "unknown"]
    assert len(outside.seen("mail")) == (when == "after")


@pytest.mark.parametrize("tool", EVERY)
async def test_a_refusal_comes_to_the_node_as_data_and_stands(tools: Toolbox, outside: Outside, tool: str) -> None:
    outside.trouble(tool, BusinessFailure("not with us", code="banned", details={"since": 1999}))
    story = Story(one_call(tools, tool), kill_at=[("CP8", "")])
    assert await story.settle() == "completed"
    assert story.output == ["banned", "not with us", {"since": 1999}]
    assert story.facts() == ([] if tool == "look" else ["pending", "failed"])


async def test_a_refusal_is_the_same_on_every_replay(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", BusinessFailure("no", code="c", details=[1]))
    seen: list[Any] = []

    async def node(state: Notes, ctx: Context) -> End:
        with pytest.raises(ToolFailure) as failure:
            await ctx.call(tools.order, Item(name="a"))
        seen.append((failure.value.code, failure.value.message, failure.value.details, str(failure.value)))
        await ctx.sleep(0)
        return End()

    assert await Story(agent_of(node, tools=tools.all())).settle() == "completed"
    assert len(seen) == 2 and seen[0] == seen[1]
    assert outside.seen("order") == []


@pytest.mark.parametrize("tool", ["look", "order"])
async def test_bug_fails_the_run_and_a_retry_keeps_the_key(tools: Toolbox, outside: Outside, tool: str) -> None:
    outside.trouble(tool, ZeroDivisionError("a bug"), when="after")
    story = Story(one_call(tools, tool))
    assert await story.settle() == "failed"
    assert story.failure.code == "tool_error"
    assert "ZeroDivisionError: a bug" in story.failure.payload["traceback"]
    story.retry_run()
    assert await story.settle() == "completed"
    assert len({r.key for r in outside.seen(tool)}) == 1 and len(outside.executed(tool)) == (tool == "order")


# --- in place, then as a timer ---


async def test_lasting_trouble_parks_on_a_timer(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", *[TransportError("away")] * 3)
    policy = RetryPolicy(first=0, longest=0, in_place=-1, timer_first=5, timer_longest=12)
    story = Story(one_call(tools, "order"), retry=policy)
    lengths = []
    for _ in range(3):
        began = story.run.events[-1]
        assert await story.drive() == "parked" and began is not None
        ((wait_id, wait),) = story.waiting("timer")
        lengths.append((wait.spec.deadline - datetime.now(UTC)).total_seconds())
        assert await story.drive() == "parked", "driven before its time it waits on"
        assert story.waiting("timer") == [(wait_id, wait)]
        story.run.resolve(wait_id, "fired")
    for length, least in zip(lengths, (5, 10, 12), strict=True):
        assert least - 1 < length <= least * 1.25
    assert await story.drive() == "completed"
    assert len(outside.executed("order")) == 1


@pytest.mark.parametrize("tool", EVERY)
async def test_a_timer_survives_the_worker_that_set_it(tools: Toolbox, outside: Outside, tool: str) -> None:
    outside.trouble(tool, NotSent("refused"))
    story = Story(one_call(tools, tool), retry=AT_ONCE, kill_at=[("CP8", "")])
    assert await story.settle() == "completed"
    assert len(outside.seen(tool)) == 1 and len(story.events(e.WaitOpened)) == 1


@pytest.mark.parametrize("point", ["CP2", "CP4"])
async def test_death_after_a_proof_has_an_unknown_outcome_again(tools: Toolbox, outside: Outside, point: str) -> None:
    story = Story(one_call(tools, "mail"), retry=IN_PLACE)

    def refuse_then_die(call: ToolCall) -> None:
        story.kill_at.append((point, "mail"))
        raise NotSent("refused")

    outside.trouble("mail", refuse_then_die)
    assert await story.drive() == "killed"
    assert await story.settle() == "parked" and story.waiting("reconcile")
    assert len(outside.seen("mail")) == (point == "CP4")


async def test_a_death_right_after_a_proof_leaves_no_unknown_outcome(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("mail", NotSent("refused"))
    story = Story(one_call(tools, "mail"), retry=IN_PLACE, kill_at=[])

    def die_before_the_repeat(call: ToolCall) -> None:
        story.kill_at.append(("CP1", ""))
        raise NotSent("refused again")

    outside.trouble("mail", die_before_the_repeat)
    assert await story.drive() == "killed"
    assert await story.settle() == "completed"
    assert len(outside.seen("mail")) == 1


# --- time ---


async def test_a_tool_that_never_answers_is_cut_off_after_its_timeout(outside: Outside) -> None:
    for replay_class, how in [(ReplayClass.UNSAFE_ON_REPLAY, "reconcile"), (ReplayClass.PURE, "timer")]:

        @tool(replay_class=replay_class, timeout=0.01)
        async def stuck(args: Item, call: ToolCall) -> Item:
            await asyncio.Event().wait()
            raise AssertionError

        async def node(state: Notes, ctx: Context, used: Any = stuck) -> End:
            return End(await ctx.call(used, Item(name="a")))

        story = Story(agent_of(node, tools=[stuck]))
        assert await story.drive() == "parked" and story.waiting(how)
        assert [x.is_sender_done for x in story.events(e.ToolOutcomeUnknown)] == [True] * (how == "reconcile")


async def test_a_thread_that_is_still_sending_is_not_taken_for_done() -> None:
    let_go = threading.Event()

    @tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, timeout=0.01)
    def stuck(args: Item, call: ToolCall) -> Item:
        threads.begun.set()
        let_go.wait(30)
        return args

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.call(stuck, Item(name="a")))

    threads = Begun(1)
    story = Story(agent_of(node, tools=[stuck]), threads=threads)
    assert await story.drive() == "parked"
    let_go.set()
    assert [x.is_sender_done for x in story.events(e.ToolOutcomeUnknown)] == [False]


async def test_a_blocking_tool_runs_alongside_the_loop(tools: Toolbox, outside: Outside) -> None:
    threads: list[int] = []
    outside.trouble("fax", lambda call: threads.append(threading.get_ident()))
    assert await Story(one_call(tools, "fax")).drive() == "completed"
    assert threads and threads[0] != threading.get_ident()


# --- tools that break the rules ---


class Odd(BaseModel):
    value: Any = None
    share: float = 0.0


def odd_tool(replay_class: ReplayClass, give: Any) -> Any:
    @tool(replay_class=replay_class, timeout=5)
    async def odd(args: Item, call: ToolCall) -> Odd:
        return give() if callable(give) else give

    return odd


def _refuse_oddly() -> Any:
    raise BusinessFailure("no", details={1, 2})


def _cancel() -> Any:
    raise asyncio.CancelledError


def _exit() -> Any:
    raise SystemExit(3)


UNSTORABLE = {
    "not a number": Odd(share=float("nan")),
    "infinity": Odd(share=float("inf")),
    "half a surrogate pair": Odd(value="\ud800"),
    "an object": Odd(value=object()),
    "bytes that are no text": Odd(value=b"\xff"),
    "another model": Item(name="x"),
    "nothing": None,
    "pending, though it answers at once": lambda: Pending(receipt={"x": object()}),
    "a refusal with details that are no JSON": _refuse_oddly,
    "a cancellation of its own": _cancel,
    "an exit": _exit,
}


@each_case("replay_class", list(ReplayClass))
@each_case("what", UNSTORABLE)
async def test_unrecordable_result_ends_the_call(what: str, replay_class: ReplayClass) -> None:
    odd = odd_tool(replay_class, UNSTORABLE[what])

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(odd, Item(name="a"))
        except Exception:
            return End("passed over")
        return End("fine")

    story = Story(agent_of(node, tools=[odd]))
    how = await story.settle()
    if replay_class is ReplayClass.UNSAFE_ON_REPLAY:
        assert how == "parked" and story.waiting("reconcile")
        assert story.facts() == ["pending", "unknown"]
    else:
        assert how == "failed" and story.failure.code in ("tool_error", "tool_result")


@each_case("replay_class", list(ReplayClass))
@each_case("value", [2**60, -(2**70), "nul \x00", 1.5, {"deep": [{}] * 3}, "\U0001f9fe"])
async def test_odd_but_plain_results_are_recorded_as_they_are(replay_class: ReplayClass, value: Any) -> None:
    odd = odd_tool(replay_class, Odd(value=value))

    async def node(state: Notes, ctx: Context) -> End:
        got = (await ctx.call(odd, Item(name="a"))).value
        await ctx.sleep(0)
        return End(got == value)

    story = Story(agent_of(node, tools=[odd]))
    assert await story.settle() == "completed" and story.output is True


@each_case("replay_class", list(ReplayClass))
async def test_error_message_with_half_a_surrogate_pair_is_recorded(replay_class: ReplayClass) -> None:
    errors: list[Exception] = [
        TransportError("\ud800"),
        BusinessFailure("\ud800"),
        KeyError("\ud800"),
        NotSent("\ud800"),
    ]
    for error in errors:
        outside = Outside()
        tools = Toolbox(outside)
        name = {"pure": "look", "idempotent_with_key": "order", "unsafe_on_replay": "mail"}[str(replay_class)]
        outside.trouble(name, error)

        story = Story(one_call(tools, name))
        assert await story.settle() in ("completed", "failed", "parked")


async def test_a_node_can_not_cut_a_call_short_and_go_on(tools: Toolbox, outside: Outside) -> None:
    """`asyncio.timeout` around a journaled call would leave its outcome unknown to the node."""

    async def hang(call: ToolCall) -> None:
        await asyncio.Event().wait()

    outside.trouble("mail", hang, when="after")

    async def node(state: Notes, ctx: Context) -> End:
        try:
            async with asyncio.timeout(0.01):
                await ctx.call(tools.mail, Item(name="a"))
        except TimeoutError:
            await ctx.call(tools.order, Item(name="instead"))
        return End("went on")

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.settle() == "failed" and story.failure.code == "cut_call"
    assert outside.seen("order") == []
    story.retry_run()
    assert await story.settle() == "parked" and story.waiting("reconcile")
    assert len(outside.seen("mail")) == 1


async def test_a_node_that_swallows_its_own_cancellation_is_still_cut_off(tools: Toolbox, outside: Outside) -> None:
    """At the drain's deadline the host cancels what is left; the run then belongs to another worker."""
    hanging = asyncio.Event()

    async def hang(call: ToolCall) -> None:
        hanging.set()
        await asyncio.Event().wait()

    outside.trouble("order", hang, when="after")

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.order, Item(name="a"))
        except asyncio.CancelledError:
            pass
        return End("swallowed")

    story = Story(agent_of(node, tools=tools.all()))
    driving = asyncio.create_task(story.drive())
    await hanging.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert not story.events(e.RunCompleted) and not story.events(e.RunFailed)
