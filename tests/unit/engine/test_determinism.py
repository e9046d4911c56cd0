"""A replay is answered from the journal; if it differs, nothing is sent and a person looks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Assistant, BusinessFailure, Context, End, ToolFailure
from ledger import events as e
from tests.unit.engine.story import Story
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of

Step = Any


async def test_a_replay_sends_nothing_twice_and_sees_the_same(tools: Toolbox, outside: Outside) -> None:
    seen: list[list[Any]] = []

    async def node(state: Notes, ctx: Context) -> End:
        values: list[Any] = [
            (await ctx.call(tools.look, Item(name="a"))).ref,
            (await ctx.call(tools.order, Item(name="b"))).ref,
            (await ctx.call(tools.mail, Item(name="c"))).ref,
            await ctx.now(),
            await ctx.random(),
            await ctx.uuid(),
        ]
        await ctx.sleep(60)
        seen.append(values)
        return End([str(v) for v in values])

    story = Story(agent_of(node, tools=tools.all()), kill_at=[("CP8", "")])
    assert await story.settle() == "completed"
    assert [r.tool for r in outside.requests] == ["look", "order", "mail"]
    assert story.output == [str(v) for v in seen[-1]]
    assert story.facts() == ["pending", "committed"] * 2


async def test_operators_acts_change_no_replay(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        first = await ctx.call(tools.order, Item(name="a"))
        drawn = await ctx.random()
        await ctx.sleep(60)
        return End([first.ref, drawn])

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "parked"
    drawn = story.events(e.ValueRead)[0].payload
    story.run.append(
        [
            e.PauseRequested(by="user:olga"),
            e.RunPaused(by="user:olga"),
            e.RunResumed(by="user:olga", state="waiting_event"),
            e.WorkerLost(worker="w", epoch=1, pid=1, proof="gone", is_counted=True, deaths=1),
        ]
    )
    assert await story.settle() == "completed"
    assert story.output == ["order:a", drawn]
    assert len(outside.requests) == 1


def _model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "thought"})])


ASSISTANT = Assistant(name="thinker", instructions="Think.", output=Done, offline=_model)


def steps(tools: Toolbox) -> dict[str, Step]:
    """Return each kind of journaled call, as a node's first step."""
    return {
        "look": lambda ctx: ctx.call(tools.look, Item(name="a")),
        "look at b": lambda ctx: ctx.call(tools.look, Item(name="b")),
        "order": lambda ctx: ctx.call(tools.order, Item(name="a")),
        "order b": lambda ctx: ctx.call(tools.order, Item(name="b")),
        "mail": lambda ctx: ctx.call(tools.mail, Item(name="a")),
        "now": lambda ctx: ctx.now(),
        "random": lambda ctx: ctx.random(),
        "sleep": lambda ctx: ctx.sleep(0),
        "model": lambda ctx: ctx.model(ASSISTANT, "hello"),
        "think": lambda ctx: ctx.think(ASSISTANT, "hello"),
        "think else": lambda ctx: ctx.think(ASSISTANT, "good bye"),
        "approve": lambda ctx: ctx.approve("legal", title="May I?", body={"x": 1}),
        "signal": lambda ctx: ctx.signal("go"),
        "another signal": lambda ctx: ctx.signal("stop"),
        "ask": lambda ctx: ctx.ask("legal", title="Which?", schema=Item),
        "ask else": lambda ctx: ctx.ask("legal", title="What?", schema=Item),
        "gather": lambda ctx: ctx.gather(ctx.random(), ctx.call(tools.look, Item(name="a"))),
        "gather more": lambda ctx: ctx.gather(ctx.random(), ctx.call(tools.look, Item(name="a")), ctx.uuid()),
    }


KINDS = list(steps(Toolbox(Outside())))
# Of each kind its neighbours above, which include the same call with other arguments.
BESIDE = {*itertools.pairwise(KINDS), *itertools.pairwise(KINDS[::-1])}
PAIRS = [pytest.param(*two, marks=[pytest.mark.long] * (two not in BESIDE)) for two in itertools.permutations(KINDS, 2)]


@pytest.mark.parametrize(("recorded", "now"), PAIRS)
async def test_changed_call_is_shown_and_not_sent(tools: Toolbox, outside: Outside, recorded: str, now: str) -> None:
    does = {"first": recorded}

    async def node(state: Notes, ctx: Context) -> End:
        await steps(tools)[does["first"]](ctx)
        await ctx.call(tools.hooked, Item(name="after"))
        return End()

    story = Story(agent_of(node, tools=tools.all(), assistants=[ASSISTANT]), kill_at=[("CP2", "hooked")])
    first = await story.drive()
    if recorded == "approve":
        story.decide()
    elif recorded in ("signal", "another signal"):
        story.run.signal("go" if recorded == "signal" else "stop")
    elif recorded in ("ask", "ask else"):
        story.run.answer({"name": "this"})
    elif recorded == "sleep":
        for wait_id, _ in story.waiting("timer"):
            story.run.resolve(wait_id, "fired")
    else:
        assert first == "killed"
    sent, written = len(outside.requests), len(story.run.entries)
    models = len(story.events(e.ModelRequested))

    does["first"] = now
    assert await story.drive() == "operator", f"{now} in the place of {recorded}"
    assert len(outside.requests) == sent and len(story.run.entries) == written
    assert len(story.events(e.ModelRequested)) == models
    assert story.found.reason == "non_determinism"
    assert story.found.payload["recorded"]["call"] != story.found.payload["now"]["call"] or (
        story.found.payload["recorded"]["hash"] != story.found.payload["now"]["hash"]
    )
    assert story.found.payload["slot"].startswith("0.1/1")


@pytest.mark.parametrize("how", ["look", "order", "pay", "refused"])
async def test_both_calls_are_shown_with_their_arguments(tools: Toolbox, outside: Outside, how: str) -> None:
    """From a read's result, an intent, a plan at its gate, a refusal: wherever the journal holds them."""
    names = iter(("recorded", "now"))

    async def node(state: Notes, ctx: Context) -> End:
        name = next(names)
        try:
            await ctx.call(
                tools.pay if how == "pay" else tools.look if how == "look" else tools.order,
                Item(name=name, amount=5000),
            )
        except ToolFailure:
            pass
        await ctx.sleep(60)
        return End()

    if how == "refused":
        outside.trouble("order", BusinessFailure("no"))
    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "parked"
    assert await story.drive() == "operator"
    found = story.found.payload
    assert found["recorded"]["arguments"] == {"name": "recorded", "amount": 5000}
    assert found["now"]["arguments"] == {"name": "now", "amount": 5000}


async def test_replay_does_not_skip_a_call_of_unknown_outcome(tools: Toolbox, outside: Outside) -> None:
    does = {"mail": True}

    async def node(state: Notes, ctx: Context) -> End:
        if does["mail"]:
            await ctx.call(tools.mail, Item(name="a"))
        return End()

    story = Story(agent_of(node, tools=tools.all()), kill_at=[("CP4", "mail")])
    assert await story.drive() == "killed"
    does["mail"] = False
    assert await story.drive() == "operator"
    assert story.found.reason == "non_determinism" and story.found.payload["recorded"]["call"] == "mail"
    assert story.facts() == ["pending"] and len(outside.requests) == 1


async def test_an_operator_who_retries_a_repaired_agent_lets_it_go_on(tools: Toolbox, outside: Outside) -> None:
    does = {"name": "a"}

    async def node(state: Notes, ctx: Context) -> End:
        done = await ctx.call(tools.order, Item(name=does["name"]))
        await ctx.sleep(0)
        return End(done.ref)

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "parked"
    ((timer, _),) = story.waiting("timer")
    story.run.resolve(timer, "fired")
    does["name"] = "b"
    assert await story.drive() == "operator"
    ((wait, _),) = story.waiting("operator")
    does["name"] = "a"
    story.run.resolve(wait, "retried")
    assert await story.drive() == "completed"
    assert story.output == "order:a" and len(outside.requests) == 1


async def test_a_journal_whose_result_no_longer_fits_the_tool_stops_for_an_operator(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="a"))
        await ctx.sleep(0)
        return End()

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "parked"
    for i, event in enumerate(story.run.events):
        if isinstance(event, e.ToolReturned):
            story.run.events[i] = e.ToolReturned(slot=event.slot, tool="order", payload={"result": {"wrong": 1}})
    assert await story.drive() == "operator"
    assert story.found.reason == "recorded_result"


async def test_a_checkpoint_that_no_longer_fits_the_state_stops_for_an_operator(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(0)
        return End()

    story = Story(agent_of(node))
    assert await story.drive() == "parked"
    seq, snapshot = story.run.snapshots[-1]
    story.run.snapshots[-1] = (seq, type(snapshot)(snapshot.node, 1, 0, "", {"seen": "no list"}))
    assert await story.drive() == "operator" and story.found.reason == "bad_checkpoint"
    again = Story(agent_of(node))
    assert await again.drive() == "parked"
    again.run.snapshots[-1] = (seq, type(snapshot)("gone", 1, 0, "", {}))
    assert await again.drive() == "operator" and again.found.reason == "unknown_node"
