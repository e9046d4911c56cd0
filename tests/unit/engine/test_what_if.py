"""A what-if: a fork that sends nothing, is answered from the record, and ends where that does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Agent, BusinessFailure, Context, End, Handoff, Renew, ToolFailure
from ledger import events as e
from runs.engine.forks import WHAT_IF, records_of
from runs.engine.steps import forks
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.unit.engine.test_forks import begin, cut, told, two_orders
from tests.unit.engine.test_screening import POISON, asking, calling, hook, no_poison
from tests.unit.engine.test_think import Mind, call, final, thinking
from tests.world import Item, Notes, Outside, Toolbox, agent_of, ends_with


def imagine(
    story: Story, visit: int = 1, *, state: Any = None, agent: Agent | None = None, answers: Any = None, **more: Any
) -> Story:
    seq, snapshot = cut(story, visit)

    def sent(name: str, n: int) -> Any:
        every = [x for x in story.run.events if isinstance(x, e.SignalReceived)]
        return next(x.payload for x in every if (x.name, x.n) == (name, n))

    records = records_of(told(story, seq), sent, lambda name: story.agent.tool(name))
    imagined = Story(agent or story.agent, story.input, **more)
    payload = {
        "state": snapshot.state if state is None else state,
        "effects": [],
        "answers": answers or {},
        "records": [
            {"slot": x.slot, "what": x.what, "requested_hash": x.requested_hash, "code": x.code, "payload": x.payload}
            for x in records
        ],
    }
    return begin(imagined, story, visit, payload, how=WHAT_IF)


def silent(imagined: Story, outside: Outside, before: int) -> None:
    assert len(outside.requests) == before and imagined.run.entries == [] and imagined.run.waits == {}
    assert not {"ToolInvoked", "ModelRequested", "ModelRouted", "ChildStarted", "ApprovalRequested"} & {
        *imagined.kinds()
    }
    assert imagined.run.used.usd_micro == imagined.run.used.tool_calls == 0


async def test_it_comes_to_the_same_end_and_sends_nothing(tools: Toolbox, outside: Outside) -> None:
    story = Story(two_orders(tools))
    await story.settle()
    before = len(outside.requests)
    imagined = imagine(story)
    assert await imagined.drive() == "completed" and imagined.output == story.output
    silent(imagined, outside, before)
    assert [x.how for x in imagined.events(e.AnswerTakenOver)] == ["what_if"] * 3


async def test_what_is_not_on_record_ends_it_and_says_what_that_was(tools: Toolbox, outside: Outside) -> None:
    story = Story(two_orders(tools))
    await story.settle()
    before = len(outside.requests)
    imagined = imagine(story, 2, state={"seen": ["x", "y"], "asked": {"text": "", "amount": 0}})
    assert await imagined.drive() == "failed" and imagined.failure.code == "not_on_record"
    assert (
        "order at 0.1/1" in imagined.failure.payload["message"] and "'amount': 2" in imagined.failure.payload["message"]
    )
    silent(imagined, outside, before)


async def test_a_person_may_say_what_a_tool_gives(tools: Toolbox, outside: Outside) -> None:
    story = Story(two_orders(tools))
    await story.settle()
    before = len(outside.requests)
    state = {"seen": ["x", "y"], "asked": {"text": "", "amount": 0}}
    imagined = imagine(story, 2, state=state, answers={"order": {"ref": "mine", "amount": 1}})
    assert await imagined.drive() == "completed" and imagined.output == ["x", "y", "mine", "mine"]
    assert [x.how for x in imagined.events(e.AnswerTakenOver)] == ["given", "given"]
    silent(imagined, outside, before)
    wrong = imagine(story, 2, state=state, answers={"order": {"nonsense": []}})
    assert await wrong.drive() == "failed" and wrong.failure.code == "not_on_record"


async def test_answers_come_in_their_order(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End([(await ctx.call(tools.look, Item(name="same"))).amount for _ in range(3)])

    story = Story(agent_of(node, tools=tools.all(), name="what-if-order"))
    await story.settle()
    results = [x for x in story.run.events if isinstance(x, e.ToolRead)]
    assert len(results) == 3
    imagined = imagine(story)
    assert await imagined.drive() == "completed" and imagined.output == story.output
    assert [x.of_slot for x in imagined.events(e.AnswerTakenOver)] == ["0.1/1", "0.1/2", "0.1/3"]


async def test_a_gate_is_asked_of_nobody_and_an_approval_is_taken_as_given(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve("finance_po", title="Pay?", tool=tools.pay, body=Item(name="a", amount=5000))
        return End((await ctx.call(tools.pay, Item(name="a", amount=5000), grant=grant)).ref)

    story = Story(agent_of(node, tools=tools.all(), name="what-if-gated"))
    await story.drive()
    story.decide()
    assert await story.drive() == "completed"
    before = len(outside.requests)
    imagined = imagine(story)
    assert await imagined.drive() == "completed" and imagined.output == story.output
    silent(imagined, outside, before)


async def test_people_signals_children_and_time_are_answered_from_the_record(outside: Outside) -> None:
    async def below(state: Notes, ctx: Context) -> End:
        return End("below")

    under = agent_of(below, name="what-if-below")

    async def node(state: Notes, ctx: Context) -> End:
        unique = await ctx.uuid()
        got = await ctx.signal("go")
        await ctx.sleep(60)
        said = await ctx.ask("operator", title="How many?", schema=Item)
        child = await ctx.child(under, {"text": "x", "amount": 1})
        return End([str(unique), got, said.name, child])

    story = Story(agent_of(node, name="what-if-waits"))
    await story.drive()
    story.run.signal("go", {"n": 1})
    await story.settle()
    story.run.answer({"name": "five", "amount": 5})
    await story.settle()
    (child,) = story.run.children
    story.run.end_child(child, output="below")
    assert await story.settle() == "completed"
    imagined = imagine(story)
    assert await imagined.drive() == "completed" and imagined.output == story.output
    assert imagined.run.children == {}
    silent(imagined, outside, 0)


async def test_no_model_is_asked(tools: Toolbox, outside: Outside) -> None:
    mind = Mind([call("order", name="a")], [final()])
    story = Story(thinking(tools, mind))
    assert await story.settle() == "completed" and story.output == "done"
    before = len(outside.requests)

    async def none(*_: Any) -> Any:
        raise AssertionError("a model was asked")

    imagined = imagine(story, model=none)
    assert await imagined.drive() == "completed" and imagined.output == story.output and len(mind.shown) == 2
    silent(imagined, outside, before)


async def test_a_refusal_on_record_is_one_again(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", BusinessFailure("no", code="no_credit"))

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.order, Item(name="a"))
        except ToolFailure as no:
            return End(no.code)
        return End()

    story = Story(agent_of(node, tools=tools.all(), name="what-if-refused"))
    await story.settle()
    assert story.output == "no_credit"
    imagined = imagine(story)
    assert await imagined.drive() == "completed" and imagined.output == "no_credit"


@each_case("returned", [Renew(Notes()), Handoff("what-if-other", {"text": "x", "amount": 1})])
async def test_it_goes_on_as_no_other_run(returned: Any) -> None:
    agent_of(ends_with("other"), name="what-if-other")

    async def node(state: Notes, ctx: Context) -> Any:
        return returned

    story = Story(agent_of(node, name="what-if-goes-on"))
    await story.drive()
    imagined = imagine(story)
    assert await imagined.drive() == "completed" and imagined.run.heir is None


async def test_bypassing_steps_sends_nothing(tools: Toolbox, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(two_orders(tools))
    await story.settle()
    before = len(outside.requests)
    monkeypatch.setattr(forks, "of", lambda visit: None)
    for visit in (1, 2):
        imagined = imagine(story, visit)
        assert await imagined.drive() == "operator" and imagined.found.reason == "what_if_sends"
    assert len(outside.requests) == before


async def test_one_that_only_looks_at_the_clock_gives_way_and_ends(tools: Toolbox, outside: Outside) -> None:
    async def first(state: Notes, ctx: Context) -> str:
        return "poll"

    async def poll(state: Notes, ctx: Context) -> End:
        until = (await ctx.now()) + timedelta(hours=1)
        while await ctx.now() < until:
            await ctx.sleep(60)
        return End()

    story = Story(agent_of(first, poll, tools=tools.all(), name="imagined-poll"))
    await story.drive()
    imagined = imagine(story, 2)
    ticks, others = [0], asyncio.Event()

    async def tick() -> None:
        while not others.is_set():
            ticks[0] += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(tick())
    assert await imagined.drive() == "failed" and ticks[0] > 100
    others.set()
    await beside
    assert imagined.run.events[-1].code == "not_on_record"


@pytest.mark.parametrize("what", ["call", "prompt"])
async def test_what_a_hook_refused_is_refused_by_the_same_error(tools: Toolbox, outside: Outside, what: str) -> None:
    guard, _ = hook(no_poison)
    agent = calling(tools, "order", Item(name=POISON)) if what == "call" else asking(tools, Mind(), POISON)
    story = Story(agent, screens=(guard,))
    assert await story.settle() == "completed" and story.output[-1] == "poison"
    before = len(outside.requests)
    imagined = imagine(story, screens=(guard,))
    assert await imagined.drive() == "completed" and imagined.output == story.output
    silent(imagined, outside, before)
    again = imagine(imagined, screens=(guard,))
    assert await again.drive() == "completed" and again.output == story.output, "also by what stands on its record"
