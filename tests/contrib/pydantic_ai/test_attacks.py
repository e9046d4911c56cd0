from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from durableagents import Assistant, Context, End, Gate, ReplayClass
from durableagents.contrib.pydantic_ai import Outside, durable
from ledger import events as e
from runs.engine.errors import DefinitionError
from tests.cases import each_case
from tests.contrib.pydantic_ai.samples import calling, settled
from tests.unit.engine.story import Story
from tests.world import Done, Notes, agent_of

PURE, KEYED, UNSAFE = ReplayClass.PURE, ReplayClass.IDEMPOTENT_WITH_KEY, ReplayClass.UNSAFE_ON_REPLAY


# --- refused by name --------------------------------------------------------------------------------------------------


def one_tool(**more: Any) -> Agent[None, str]:
    agent = Agent(calling([("send", {"to": "ann"})], "{}"))

    @agent.tool_plain(**more)
    def send(to: str) -> str:
        return f"sent to {to}"

    return agent


@each_case(
    ("more", "how", "says"),
    [
        ({}, {}, "it: tool 'send' has no replay class: give one in durable(…, tools={'send': …})"),
        ({"metadata": {"replay_class": "often"}}, {}, "tool 'send': replay class 'often'"),
        ({}, {"tools": {"send": "pure"}}, "tool 'send': replay class 'pure'"),
        ({}, {"tools": {"send": PURE}, "gates": {"sent": Gate("legal", "r")}}, "gates names 'sent'"),
        ({}, {"tools": {"send": PURE}, "gates": {"send": "legal"}}, "the gate of 'send' is 'legal'"),
        ({}, {"tools": {"send": PURE}, "later": ["other"]}, "later names 'other'"),
        ({}, {"tools": {"send": PURE}, "later": ["send"]}, "a pure tool can't answer later"),
        ({}, {"outside": {"send": Outside()}}, "tool 'send' has a function"),
        ({"requires_approval": True}, {"tools": {"send": UNSAFE}}, "tool 'send' requires approval"),
        ({"name": "send mail"}, {"tools": {"send mail": UNSAFE}}, "tool name 'send mail' is invalid"),
        ({}, {"tools": {"send": PURE}, "max_requests": 0}, "max_turns is 0"),
        ({}, {"tools": {"send": PURE}, "models": ["gpt"]}, "'gpt' is not a model: give provider:model"),
    ],
)
def test_what_is_not_said_is_refused_at_the_definition(more: Any, how: Any, says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        durable(one_tool(**more), name="it", **how)
    assert says in refused.value.detail


def test_an_agent_needs_a_name_and_an_external_tool_somebody_who_answers() -> None:
    with pytest.raises(DefinitionError, match="has no name"):
        durable(Agent(TestModel()))
    outer = Agent(TestModel(), toolsets=[ExternalToolset([ToolDefinition(name="pick")])])
    with pytest.raises(DefinitionError, match="'pick' runs outside the agent"):
        durable(outer, name="it")
    for wrong in ({"ask": "legal"}, {"schema": Done}, {"within": timedelta(0)}):
        with pytest.raises(DefinitionError, match="Outside"):
            Outside(**wrong)  # type: ignore[arg-type]


def test_a_tool_may_say_its_class_itself() -> None:
    made = durable(one_tool(metadata={"replay_class": "unsafe_on_replay"}), name="it")
    assert [t.replay_class for t in made.tools] == [UNSAFE]
    assert made.tools[0].input.model_json_schema()["properties"] == {"to": {"type": "string"}}


async def test_a_tool_that_is_only_seen_while_it_runs_is_refused_before_anybody_is_asked() -> None:
    hidden: FunctionToolset[None] = FunctionToolset()
    items = []

    @hidden.tool_plain
    def drop(what: str) -> str:
        raise AssertionError("never called")

    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        items.append(1)
        return ModelResponse([ToolCallPart("db_drop", {"what": "all"})])

    story = await settled(Agent(FunctionModel(say), toolsets=[hidden.prefixed("db")]))
    assert "tool 'db_drop' has no replay class" in story.failure.payload["message"]
    assert items == [] and story.events(e.ModelRequested) == []


async def test_a_tool_behind_a_wrapper_works_under_its_name_and_is_gated_where_the_wrapper_asks() -> None:
    kept: FunctionToolset[None] = FunctionToolset()
    done = []

    @kept.tool_plain
    def drop(what: str) -> str:
        done.append(what)
        return "dropped"

    agent = Agent(calling([("db_drop", {"what": "all"})], "{}"), toolsets=[kept.prefixed("db").approval_required()])
    story = await settled(agent, tools={"db_drop": UNSAFE}, gates={"db_drop": Gate("legal", "all of it")})
    assert done == []
    story.decide()
    await story.settle()
    assert (story.output, done) == ("success: dropped", ["all"])
    ungated = await settled(agent, tools={"db_drop": UNSAFE})
    assert "db_drop asks for an approval" in ungated.failure.payload["message"]
    assert done == ["all"]


async def test_an_agent_that_nobody_declared_is_named() -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.think(Agent(TestModel(), name="stray"), "go"))

    story = Story(agent_of(node))
    await story.settle()
    assert "add durable(it, tools=" in story.failure.payload["message"]


async def test_deps_are_for_agents() -> None:
    plain = Assistant("plain", "Do.", Done, offline=lambda m, i: None)

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.think(plain, "go", deps=1))

    story = Story(agent_of(node, assistants=[plain]))
    await story.settle()
    assert "deps are for Pydantic AI's agents" in story.failure.payload["message"]


async def test_a_tool_that_answers_later_unannounced_fails_the_run_with_what_to_do() -> None:
    agent = Agent(calling([("start", {})], "{}"))

    @agent.tool_plain
    def start() -> str:
        raise CallDeferred

    story = await settled(agent, tools={"start": UNSAFE})
    assert "start answers later: name it in durable(…, later=[…])" in story.failure.payload["message"]


# --- people -----------------------------------------------------------------------------------------------------------


async def test_a_no_reaches_the_model_as_a_denial_with_its_words() -> None:
    done = []
    agent = Agent(calling([("wipe", {"disk": 1})], "{}"))

    @agent.tool_plain(requires_approval=True)
    def wipe(disk: int) -> str:
        done.append(disk)
        return "wiped"

    story = await settled(agent, tools={"wipe": UNSAFE}, gates={"wipe": Gate("legal", "forever")})
    assert story.waiting("approval") and done == []
    story.decide("rejected", "not today")
    await story.settle()
    assert story.output == "denied: The tool call was denied by legal: not today"
    assert done == [] and story.facts() == []


async def test_a_gates_rule_sees_the_arguments_and_lets_small_ones_through() -> None:
    agent = Agent(calling([("pay", {"amount": 5}), ("pay", {"amount": 500})], "{}"))
    approved = []

    @agent.tool
    def pay(ctx: RunContext[None], amount: int) -> int:
        approved.append((amount, ctx.tool_call_approved))
        if amount > 100 and not ctx.tool_call_approved:
            raise ApprovalRequired
        return amount

    gate = Gate("finance", "large", when=lambda args: args["amount"] > 100)
    story = await settled(agent, tools={"pay": KEYED}, gates={"pay": gate})
    assert approved == [(5, False)]
    story.decide()
    await story.settle()
    assert story.output == "success: 5; success: 500"
    assert approved == [(5, False), (500, True)]


class Colour(BaseModel):
    """A colour."""

    name: str


def picker() -> Agent[None, str]:
    tools = ExternalToolset([ToolDefinition(name="pick-One", description="Pick.")])
    return Agent(calling([("pick-One", {"of": 2}), ("pick-One", {"of": 3})], "{}"), toolsets=[tools])


async def test_what_is_carried_out_elsewhere_is_answered_by_signals_each_call_its_own() -> None:
    story = await settled(picker(), outside={"pick-One": Outside()})
    names = [wait.spec.detail["name"] for _, wait in story.waiting("signal")]
    assert names == ["pick_one.1-0-1", "pick_one.1-0-2"]
    story.run.signal("pick_one.1-0-2", "second")
    story.run.signal("pick_one.1-0-1", ["first"])
    await story.settle()
    assert story.output == 'success: ["first"]; success: second'


async def test_or_by_a_person_who_fills_in_a_form_and_silence_is_told() -> None:
    story = await settled(picker(), outside={"pick-One": Outside("legal", Colour, timedelta(days=1))})
    first, second = story.waiting("input")
    assert first[1].spec.detail["title"] == "pick-One: of=2"
    story.run.answer({"name": "red"}, slot=first[1].spec.slot)
    story.run.resolve(second[0], "timed_out")
    await story.settle()
    assert story.output.startswith('success: {"name":"red"}; failed: nobody answered in time')
