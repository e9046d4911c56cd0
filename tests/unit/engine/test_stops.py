"""Pause, cancel and drain take effect at the next step boundary; nothing is sent after it and no node can hold on."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from durableagents import Context, DidNotHappen, End, Happened, NotSent, TransportError
from ledger import events as e
from ledger.errors import StaleLease
from runs.engine.agents import Agent, registry
from runs.engine.runtime import Control
from tests.unit.engine.story import Story
from tests.world import AT_ONCE, IN_PLACE, Done, Item, Killed, Notes, Outside, Toolbox, agent_of


def three_calls(tools: Toolbox) -> Agent:
    async def first(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.look, Item(name="a"))
        await ctx.call(tools.order, Item(name="b"))
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.hooked_mail, Item(name="c"))
        return End("done")

    return agent_of(first, second, tools=tools.all())


# Every point that a worker passes in the three calls.
POINTS = [
    ("CP7", "", 1),
    ("CP2", "look", 1),
    ("CP4", "look", 1),
    ("CP6", "look", 1),
    ("CP1", "order", 1),
    ("CP2", "order", 1),
    ("CP4", "order", 1),
    ("CP6", "order", 1),
    ("CP7", "", 2),
    ("CP1", "hooked_mail", 1),
    ("CP2", "hooked_mail", 1),
    ("CP4", "hooked_mail", 1),
    ("CP6", "hooked_mail", 1),
]
# A request can reach the worker with the journal's next answer, or from its shell.
WAYS = ["journal", "shell"]


def at(story: Story, where: tuple[str, str, int], act: Any) -> None:
    """Do something the nth time that the worker passes a point."""
    seen = itertools.count(1)

    def hit(point: str, tool: str) -> None:
        if (point, tool) == where[:2] and next(seen) == where[2]:
            act()

    story._hit = hit  # type: ignore[method-assign]


@pytest.mark.parametrize("where", POINTS, ids=lambda p: f"{p[0]}-{p[1]}{p[2]}")
@pytest.mark.parametrize("way", WAYS)
async def test_pause_and_resume_repeat_nothing(tools: Toolbox, outside: Outside, where: Any, way: str) -> None:
    story = Story(three_calls(tools))

    def ask() -> None:
        story.run.is_pause_requested = True
        if way == "shell":
            story.control.ask("pause")

    at(story, where, ask)
    how = await story.drive()
    sent_at_pause = len(outside.requests)
    if how == "completed":  # requested after the last step's check
        assert where[1:] == ("hooked_mail", 1) and where[0] == "CP6" and way == "journal"
        return
    assert how == "paused" and story.run.state == "paused" and not story.run.is_pause_requested
    # What had a recorded intent at the request was finished; nothing else began.
    before = {"look": 1, "order": 2, "hooked_mail": 3}.get(where[1], 2 * (where[2] - 1))
    unseen = where == ("CP7", "", 1) and way == "journal"
    assert sent_at_pause == before - (where[0] == "CP1") + unseen
    assert story.facts().count("pending") == story.facts().count("committed")
    assert await story.drive() == "completed"
    assert [r.tool for r in outside.requests] == ["look", "order", "hooked_mail"]


@pytest.mark.parametrize("where", POINTS, ids=lambda p: f"{p[0]}-{p[1]}{p[2]}")
@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_run_dispatches_nothing_more(tools: Toolbox, outside: Outside, where: Any, way: str) -> None:
    story = Story(three_calls(tools))
    sent: list[int] = []

    def ask() -> None:
        story.run.is_cancel_requested = True
        sent.append(len(outside.requests) + (where[0] == "CP2"))
        if way == "shell":
            story.control.ask("cancel")

    at(story, where, ask)
    assert await story.drive() == "cancelled" and story.run.state == "cancelled"
    # A read has no intent to refuse: one may still be sent on a request known only to the head.
    unseen = where == ("CP7", "", 1) and way == "journal"
    assert len(outside.requests) == sent[0] + unseen, "only the call that was on its way arrived"
    assert story.facts().count("pending") == story.facts().count("committed")
    assert story.kinds()[-1] == "RunCancelled" and story.run.open_waits() == []


@pytest.mark.parametrize("where", POINTS, ids=lambda p: f"{p[0]}-{p[1]}{p[2]}")
async def test_a_draining_worker_hands_over_at_the_boundary(tools: Toolbox, outside: Outside, where: Any) -> None:
    story = Story(three_calls(tools))
    at(story, where, lambda: story.control.ask("drain"))
    how = await story.drive()
    assert how == "released" and story.run.state == "running" and story.run.lease is None
    assert story.kinds()[-1] == "RunReleased"
    assert await story.drive() == "completed"
    assert [r.tool for r in outside.requests] == ["look", "order", "hooked_mail"]


@pytest.mark.parametrize("wish", ["pause", "cancel", "drain"])
async def test_a_wish_ends_the_rest_between_two_tries(tools: Toolbox, outside: Outside, wish: Any) -> None:
    """In place means seconds: nobody waits for them to pass."""
    outside.trouble("order", *[TransportError("away")] * 50)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="a"))
        return End()

    story = Story(agent_of(node, tools=tools.all()), retry=type(IN_PLACE)(first=60, longest=60, in_place=9000))

    def ask(point: str, tool: str) -> None:
        if point == "CP2":
            story.run.is_pause_requested = wish == "pause"
            story.run.is_cancel_requested = wish == "cancel"
            story.control.ask(wish)

    story._hit = ask  # type: ignore[method-assign]
    expected = {"pause": "paused", "cancel": "parked", "drain": "released"}[wish]
    assert await asyncio.wait_for(story.drive(), 10) == expected


async def test_withdrawn_pause_changes_nothing(tools: Toolbox, outside: Outside) -> None:
    story = Story(three_calls(tools))
    at(story, ("CP2", "order", 1), lambda: story.control.ask("pause"))  # the head says: no pause any more
    assert await story.drive() == "completed"
    assert [r.tool for r in outside.requests] == ["look", "order", "hooked_mail"]
    assert "RunPaused" not in story.kinds()


async def test_cancel_is_stronger_than_pause() -> None:
    control = Control()
    control.ask("pause")
    control.ask("cancel")
    assert control.stop == "cancel"
    control.ask("drain")
    assert control.stop == "cancel"


# --- a cancel with an unknown call ---


async def in_doubt(tools: Toolbox, outside: Outside, name: str) -> Story:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(getattr(tools, name), Item(name="a"))
        return End()

    story = Story(agent_of(node, tools=tools.all()), kill_at=[("CP4", name)])
    assert await story.drive() == "killed"
    story.run.is_cancel_requested = True
    return story


class Longer(Item):
    added: int


async def test_a_call_that_no_longer_fits_its_tool_leaves_the_cancel_to_a_person(
    tools: Toolbox, outside: Outside
) -> None:
    story = await in_doubt(tools, outside, "hooked_mail")
    registry.remove(story.agent.graph_id)
    changed = replace(story.agent, tools=[replace(tools.hooked_mail, input=Longer)])
    assert await story.drive(changed) == "parked" and len(outside.requests) == 1
    story.reconcile("happened", receipt={"ref": "seen"})
    assert await story.drive(changed) == "cancelled"


@pytest.mark.parametrize("name", ["order", "mail", "hooked", "hooked_mail"])
async def test_cancelled_run_waits_for_a_verdict(tools: Toolbox, outside: Outside, name: str) -> None:
    story = await in_doubt(tools, outside, name)
    assert await story.drive() == "parked" and story.run.state == "waiting_human"
    assert await story.drive() == "parked", "driving it again asks nobody twice"
    assert len(story.waiting("reconcile")) == 1 and story.facts() == ["pending", "unknown"]
    story.reconcile("happened", receipt={"ref": "seen"})
    assert await story.drive() == "cancelled"
    assert len(outside.requests) == 1


@pytest.mark.parametrize("verdict", ["did_not", "fail"])
async def test_cancelled_run_ends_on_any_verdict(tools: Toolbox, outside: Outside, verdict: str) -> None:
    story = await in_doubt(tools, outside, "mail")
    assert await story.drive() == "parked"
    story.reconcile(verdict)
    assert await story.drive() == "cancelled"
    assert len(outside.requests) == 1
    ended = story.events(e.RunCancelled)[-1]
    assert ended.in_flight == (["0.1/1"] if verdict == "fail" else []), "what nobody knows is disclosed"


@pytest.mark.parametrize("answer", [Happened(Done(ref="found")), DidNotHappen()], ids=["happened", "did not"])
async def test_a_hook_settles_it_without_a_person(tools: Toolbox, outside: Outside, answer: Any) -> None:
    outside.hook = lambda args, call: answer
    story = await in_doubt(tools, outside, "hooked_mail")
    assert await story.drive() == "cancelled"
    assert story.facts() == ["pending", "reconciled"] and len(outside.requests) == 1


async def test_a_proof_that_nothing_left_needs_no_person(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("mail", NotSent("refused"))

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.mail, Item(name="a"))
        return End()

    story = Story(agent_of(node, tools=tools.all()), retry=AT_ONCE)
    assert await story.drive() == "parked"
    story.run.is_cancel_requested = True
    assert await story.drive() == "cancelled" and outside.requests == []


async def test_a_call_that_upstream_accepted_is_disclosed_as_outstanding(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.call(tools.ask, Item(name="a")))

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "parked" and story.run.state == "waiting_tool"
    story.run.is_cancel_requested = True
    assert await story.drive() == "cancelled"
    assert story.events(e.RunCancelled)[0].in_flight == ["0.1/1"]


async def test_a_crash_of_the_code_under_a_cancel_ends_the_run(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        story.run.is_cancel_requested = True
        raise KeyError("a bug")

    story = Story(agent_of(node))
    assert await story.drive() in ("failed", "cancelled")
    assert story.run.lease is None


# --- no node can hold on ---


def swallowing(tools: Toolbox, what: type[BaseException], then: Any) -> Agent:
    async def node(state: Notes, ctx: Context) -> Any:
        for name in ("first", "second"):
            try:
                await ctx.sleep(3600)
                await ctx.call(tools.order, Item(name=name))
            except what:
                pass
        return then()

    return agent_of(node, tools=tools.all())


@pytest.mark.parametrize("what", [Exception, BaseException])
@pytest.mark.parametrize("then", [lambda: End("swallowed"), lambda: "nowhere", lambda: 1 / 0])
async def test_swallowing_node_is_parked(tools: Toolbox, outside: Outside, what: Any, then: Any) -> None:
    story = Story(swallowing(tools, what, then))
    assert await story.drive() == "parked"
    assert outside.requests == [] and len(story.waiting("timer")) == 1
    assert story.run.state == "waiting_event"


@pytest.mark.parametrize("wish", ["pause", "cancel", "drain"])
async def test_a_node_that_swallows_everything_is_still_stopped(tools: Toolbox, outside: Outside, wish: Any) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        for name in ("a", "b", "c"):
            with suppress(BaseException):
                await ctx.call(tools.order, Item(name=name))
        return End("swallowed")

    story = Story(agent_of(node, tools=tools.all()))

    def ask() -> None:
        story.run.is_pause_requested, story.run.is_cancel_requested = wish == "pause", wish == "cancel"
        story.control.ask(wish)

    at(story, ("CP4", "order", 1), ask)
    assert await story.drive() == {"pause": "paused", "cancel": "cancelled", "drain": "released"}[wish]
    assert len(outside.requests) == 1


async def test_a_node_that_swallows_an_unknown_outcome_can_not_go_past_it(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("mail", TransportError("cut"), when="after")

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.mail, Item(name="a"))
        except BaseException:
            await ctx.call(tools.order, Item(name="b"))
        return End("went on")

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "parked" and story.waiting("reconcile")
    assert outside.seen("order") == []


async def test_lost_lease_stops_a_node_that_catches_everything(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        for name in ("a", "b"):
            with suppress(Exception):
                await ctx.call(tools.order, Item(name=name))
        return End("zombie")

    story = Story(agent_of(node, tools=tools.all()))
    at(story, ("CP4", "order", 1), lambda: story.run.claim())
    with pytest.raises(StaleLease):
        await story.drive()
    assert len(outside.requests) == 1, "after losing its lease it sent nothing"
    assert story.facts() == ["pending"]


async def test_a_death_is_no_exception_that_a_node_could_see(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", Killed())

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.order, Item(name="a"))
        except Exception:
            return End("survived")
        return End("fine")

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.settle() == "completed" and story.output == "fine"
