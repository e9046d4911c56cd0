"""Child runs: started once, waited for without a slot, and their end recorded once."""

from __future__ import annotations

from typing import Any

import pytest

from durableagents import Agent, Budget, ChildFailure, Context, End
from ledger import events as e
from runs.engine.budget import Caps, Usage
from runs.engine.steps.children import MAX_GENERATIONS, child_id
from tests.cases import each_case
from tests.unit.engine.mortal import Death, mortal
from tests.unit.engine.story import Story
from tests.world import Asked, Done, Item, Notes, Outside, Toolbox, agent_of, ends_with


@pytest.fixture
def helper() -> Agent:
    return agent_of(ends_with({"ref": "made"}), name="helper", output=Done)


def parent_of(*children: tuple[Any, dict[str, Any]], tools: Toolbox | None = None, **more: Any) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        items = []
        for agent, input in children:
            try:
                items.append(await ctx.child(agent, input, **more))
            except ChildFailure as failure:
                items.append([failure.state, failure.code, failure.message])
        return End([x.ref if isinstance(x, Done) else x for x in items])

    return agent_of(node, tools=tools.all() if tools else ())


def only_child(story: Story) -> str:
    (child,) = story.run.children
    return child


async def test_a_child_is_started_with_its_intent_and_waited_for(helper: Agent) -> None:
    story = Story(parent_of((helper, {"text": "a"})))
    assert await story.drive() == "parked" and story.run.state == "waiting_event"
    spec = story.run.children[only_child(story)]
    assert (spec.agent, spec.version, spec.input["text"], spec.depth) == ("helper", "1.0.0", "a", 1)
    assert only_child(story) == child_id(story.run.id, "0.1/1", 0)
    assert story.kinds()[-3:] == ["ChildStarted", "WaitOpened", "RunParked"]
    assert story.run.end_child(only_child(story), output={"ref": "made"})
    assert await story.drive() == "completed" and story.output == ["made"]
    assert not story.run.end_child(only_child(story), output={"ref": "again"}), "told once"


@pytest.mark.parametrize(("state", "code"), [("failed", "no_luck"), ("cancelled", "")])
async def test_a_child_that_does_not_end_well_is_told_to_the_node(helper: Agent, state: str, code: str) -> None:
    story = Story(parent_of((helper, {})))
    await story.drive()
    story.run.end_child(only_child(story), state, code=code)
    assert await story.drive() == "completed" and story.output == [[state, code, code]]


async def test_an_output_that_does_not_fit_is_a_failure(helper: Agent) -> None:
    story = Story(parent_of((helper, {})))
    await story.drive()
    story.run.end_child(only_child(story), output={"other": 1})
    assert await story.drive() == "completed" and story.output[0][:2] == ["completed", "bad_output"]


async def test_by_name_the_output_is_plain(helper: Agent) -> None:
    story = Story(parent_of(("helper", {})))
    await story.drive()
    story.run.end_child(only_child(story), output={"ref": "made"})
    assert await story.drive() == "completed" and story.output == [{"ref": "made"}]


async def test_a_newer_version_changes_nothing_about_a_child_that_was_started(helper: Agent) -> None:
    story = Story(parent_of(("helper", {})))
    await story.drive()
    agent_of(ends_with(None), name="helper", version="2.0.0")
    story.run.end_child(only_child(story), output=1)
    assert await story.drive() == "completed" and len(story.events(e.ChildStarted)) == 1
    assert story.events(e.ChildStarted)[0].agent == "helper@1.0.0"


@pytest.mark.parametrize(
    ("agent", "input", "told"),
    [
        ("nobody", {}, "There is no agent 'nobody'"),
        ("helper@9.0.0", {}, "has no version '9.0.0'"),
        ("helper", {"amount": "many"}, "amount"),
    ],
)
async def test_what_can_not_be_started_is_refused_by_name(helper: Agent, agent: str, input: Any, told: str) -> None:
    story = Story(parent_of((agent, input)))
    assert await story.drive() == "failed"
    assert told in story.failure.payload["message"] and not story.run.children


async def test_an_agent_that_starts_itself_comes_to_an_end(helper: Agent) -> None:
    story = Story(parent_of((helper, {})))
    story.run.depth = MAX_GENERATIONS
    assert await story.drive() == "failed" and not story.run.children
    story = Story(parent_of((helper, {})))
    story.run.depth = MAX_GENERATIONS - 1
    assert await story.drive() == "parked"
    assert story.run.children[only_child(story)].depth == MAX_GENERATIONS


@pytest.mark.parametrize("nth", range(1, 8))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_wherever_a_worker_dies_one_child_is_started(helper: Agent, nth: int, when: Any) -> None:
    story = Story(parent_of((helper, {"text": "a"}), (helper, {"text": "b"})), journal=mortal([Death(nth, when)]))
    ended: set[str] = set()
    for _ in range(8):
        if await story.drive() == "completed":
            break
        for child in set(story.run.children) - ended:
            if story.run.end_child(child, output={"ref": story.run.children[child].input["text"]}):
                ended.add(child)
    assert story.output == ["a", "b"] and len(story.run.children) == 2
    assert len(story.events(e.ChildStarted)) == len(story.events(e.ChildEnded)) == 2


async def test_many_children_give_their_results_in_order(helper: Agent) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End([x.ref for x in await ctx.gather(*(ctx.child(helper, Asked(text=str(i))) for i in range(50)))])

    story = Story(agent_of(node))
    assert await story.drive() == "parked" and len(story.run.children) == 50
    by_text = {spec.input["text"]: child for child, spec in story.run.children.items()}
    for i in (49, *range(0, 49, 7)):
        story.run.end_child(by_text[str(i)], output={"ref": str(i)})
    assert await story.drive() == "parked"
    for child, spec in story.run.children.items():
        story.run.end_child(child, output={"ref": spec.input["text"]})
    assert await story.drive() == "completed" and story.output == [str(i) for i in range(50)]


# --- its budget -------------------------------------------------------------------------------------------------------


@each_case(("asked", "own", "given"), [(None, 60, 60), (30, 60, 30), (90, 60, 60), (90, None, 90)])
async def test_child_has_its_agents_time_limit(asked: int | None, own: int | None, given: int, tools: Toolbox) -> None:
    slow = agent_of(ends_with({"ref": "x"}), name="slow", output=Done, budget=Budget(wall_seconds=own))
    story = Story(parent_of((slow, {}), budget=Budget(wall_seconds=asked) if asked else None))
    assert await story.drive() == "parked"
    time = story.run.children[only_child(story)].time
    assert time is not None and time.total_seconds() == given


async def test_what_a_child_may_use_is_set_aside_and_what_it_used_is_debited(helper: Agent, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.child(helper, {}, budget=Budget(tool_calls=4))
        await ctx.call(tools.order, Item(name="a"))
        return End(None)

    story = Story(agent_of(node, tools=tools.all()), caps=Caps(tool_calls=5))
    assert await story.drive() == "parked"
    assert story.run.children[only_child(story)].caps == Caps(tool_calls=4)
    story.run.end_child(only_child(story), output={"ref": ""}, used=Usage(tool_calls=3, steps=3))
    assert await story.drive() == "completed" and story.run.used == Usage(steps=4, tool_calls=4)


async def test_without_a_budget_of_its_own_a_child_has_what_is_left(helper: Agent, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="a"))
        return End((await ctx.child(helper, {})).ref)

    story = Story(agent_of(node, tools=tools.all()), caps=Caps(tool_calls=5, usd_micro=10))
    await story.drive()
    assert story.run.children[only_child(story)].caps == Caps(tool_calls=4, usd_micro=10)


async def test_children_at_once_share_what_is_left_and_a_greedy_one_waits_for_more(helper: Agent) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        calls = (ctx.child(helper, Asked(text=str(i)), budget=Budget(model_calls=2)) for i in range(3))
        return End(len(await ctx.gather(*calls)))

    story = Story(agent_of(node), caps=Caps(model_calls=5))
    assert await story.drive() == "paused" and len(story.run.children) == 2
    (over,) = story.events(e.BudgetExceeded)
    assert (over.resource, over.reserved, over.wanted) == ("model_calls", 4, 2)
    story.run.raise_budget(Caps(model_calls=6))
    assert await story.drive() == "parked" and len(story.run.children) == 3
    for child in list(story.run.children):
        story.run.end_child(child, output={"ref": ""}, used=Usage(model_calls=1))
    assert await story.drive() == "completed" and story.run.used.model_calls == 3


# --- a retry ----------------------------------------------------------------------------------------------------------


async def test_a_retried_run_starts_a_failed_child_again(helper: Agent, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.child(helper, {})).ref)

    story = Story(agent_of(node))
    await story.drive()
    first = only_child(story)
    story.run.end_child(first, "failed", code="no_luck")
    assert await story.drive() == "failed" and story.failure.code == "no_luck"
    story.retry_run()
    assert await story.drive() == "parked"
    (second,) = story.run.children.keys() - {first}
    assert second == child_id(story.run.id, "0.1/1", 1)
    story.run.end_child(second, output={"ref": "made"})
    assert await story.drive() == "completed" and story.output == "made"
