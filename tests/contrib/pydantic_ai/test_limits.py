"""The models of a Pydantic AI agent, its budget, and how it stops."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel

from durableagents import ReplayClass
from durableagents.contrib.pydantic_ai import durable
from ledger import events as e
from runs.engine.budget import Caps
from tests.contrib.pydantic_ai.samples import calling, settled, thinking, turns
from tests.unit.engine.story import Story
from tests.world import IN_PLACE

PURE, KEYED, UNSAFE = ReplayClass.PURE, ReplayClass.IDEMPOTENT_WITH_KEY, ReplayClass.UNSAFE_ON_REPLAY


# --- models, limits, budgets ------------------------------------------------------------------------------------------


async def test_several_at_once_of_one_agent_keep_apart() -> None:
    agent = Agent(calling([("who", {})], "{}"), deps_type=str)

    @agent.tool
    async def who(ctx: RunContext[str]) -> str:
        await turns(3)
        return f"{ctx.prompt}, {ctx.deps}"

    story = await settled(agent, tools={"who": PURE}, times=3, deps="d")
    assert story.output == [f"success: go {i}, d" for i in range(3)]


async def test_its_limits_are_the_nodes_failure() -> None:
    agent = Agent(calling(*[[("look", {})]] * 9))

    @agent.tool_plain
    def look() -> str:
        return "seen"

    story = await settled(agent, tools={"look": PURE}, max_requests=3)
    assert story.output[0] == "too_many_turns" and len(story.events(e.ModelResponded)) == 3
    unknown = await settled(Agent(calling(*[[("nothing", {})]] * 9)))
    assert unknown.output[0] == "no_valid_answer"


async def test_it_draws_on_the_runs_budget_and_goes_on_when_that_is_raised() -> None:
    agent = Agent(calling([("look", {})], [("look", {})], "{}"))

    @agent.tool_plain
    def look() -> str:
        return "seen"

    story = await settled(agent, tools={"look": PURE}, caps=Caps(model_calls=2))
    assert [w.spec.detail["resource"] for _, w in story.waiting("budget")] == ["model_calls"]
    story.run.raise_budget(Caps(model_calls=3))
    await story.settle()
    assert story.output == "success: seen"
    assert story.run.used.model_calls == 3 and story.run.used.tool_calls == 2
    assert story.run.used.tokens_in == sum(x.tokens_in for x in story.events(e.ModelResponded)) > 0


async def test_whom_it_asks_is_its_own_list_and_the_next_where_one_does_not_serve() -> None:
    items: list[tuple[str, Any]] = []

    class Acme(Model):
        """A provider's model, with a client of the agent's own."""

        def __init__(self, name: str, *, serves: bool) -> None:
            super().__init__()
            self.name, self.serves = name, serves

        @property
        def model_name(self) -> str:
            return self.name

        @property
        def system(self) -> str:
            return "acme"

        async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> ModelResponse:
            items.append((self.name, model_settings["temperature"]))
            if not self.serves:
                raise ModelHTTPError(401, self.name)
            return ModelResponse([TextPart("here")], model_name=self.name)

    agent = Agent(FallbackModel(Acme("one", serves=False), Acme("two", serves=True)))
    agent.model_settings = {"temperature": 0.5, "max_tokens": 70}
    story = await settled(agent)
    assert story.output == "here" and items == [("one", 0.5), ("two", 0.5)]
    assert [x.models for x in story.events(e.ModelsChosen)] == [["acme:one", "acme:two"]]
    assert [(x.model, x.tokens_out) for x in story.events(e.ModelRouted)] == [("acme:one", 70), ("acme:two", 70)]
    assert story.events(e.ModelRouted)[0].payload["settings"]["temperature"] == 0.5
    named = durable(Agent("openai:gpt-4.1", defer_model_check=True), name="it")
    assert named.models == ("openai:gpt-4.1",) and named.offline is None
    moved = durable(Agent(TestModel()), name="it", models=["openai:gpt-5"])
    assert moved.models == ("openai:gpt-5",) and moved.offline is not None


async def test_an_agent_with_a_handler_of_events_works_and_hears_of_them_again() -> None:
    heard = []

    async def handler(ctx: RunContext[None], events: Any) -> None:
        async for event in events:
            heard.append(event.event_kind)

    agent = Agent(calling([("look", {})], "{}"), capabilities=[ProcessEventStream(handler)])

    @agent.tool_plain
    def look() -> str:
        return "seen"

    story = await settled(agent, tools={"look": PURE})
    assert story.output == "success: seen"
    assert "part_start" in heard and "function_tool_result" in heard


async def test_a_stop_waits_for_what_is_in_flight_and_leaves_nothing_of_it_running() -> None:
    agent = Agent(calling([("slow", {})], "{}"))
    begun, may_end = asyncio.Event(), asyncio.Event()

    @agent.tool_plain
    async def slow() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    story = Story(thinking(agent, tools={"slow": UNSAFE}), retry=IN_PLACE)
    driving = asyncio.create_task(story.drive())
    await begun.wait()
    story.control.ask("drain")
    await turns(100)
    assert not driving.done()
    may_end.set()
    await driving
    assert story.facts() == ["pending", "committed"] and not story.events(e.RunCompleted)
    await story.settle()
    assert story.output == "success: done"
    assert [t for t in asyncio.all_tasks() if t.get_name().startswith("agent ")] == [], "nothing of it is left over"
