from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturn, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from durableagents import Gate, ReplayClass
from durableagents.contrib.pydantic_ai import durable, this_call
from tests.cases import each_case
from tests.contrib.pydantic_ai.samples import calling, settled, thinking, turns
from tests.unit.engine.story import Story
from tests.world import IN_PLACE

PURE, KEYED, UNSAFE = ReplayClass.PURE, ReplayClass.IDEMPOTENT_WITH_KEY, ReplayClass.UNSAFE_ON_REPLAY


# --- what must be the same each time ----------------------------------------------------------------------------------


class Fickle:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.times


def _dynamic(fickle: Fickle) -> Agent[None, str]:
    agent = Agent(calling([("look", {})], "{}"))

    @agent.instructions
    def hint() -> str:
        return f"It is {'late' if fickle() > 2 else 'early'}."

    return agent


def _history(fickle: Fickle) -> Agent[None, str]:
    def shortened(messages: list[ModelMessage]) -> list[ModelMessage]:
        return messages if fickle() <= 2 else [ModelRequest(parts=[UserPromptPart("shorter")]), *messages[1:]]

    return Agent(calling([("look", {})], "{}"), capabilities=[ProcessHistory(shortened)])


def _settings(fickle: Fickle) -> Agent[None, str]:
    return Agent(
        calling([("look", {})], "{}"), model_settings=lambda ctx: ModelSettings(temperature=1.0 if fickle() > 2 else 0)
    )


def _prepared(fickle: Fickle) -> Agent[None, str]:
    agent = Agent(calling([("look", {})], "{}"))

    async def prepare(ctx: RunContext[None], definition: ToolDefinition) -> ToolDefinition | None:
        return replace(definition, description="now" if fickle() > 2 else "then")

    @agent.tool_plain(prepare=prepare)
    def other() -> str:
        return ""

    return agent


@each_case(
    ("make", "says"),
    [
        (_dynamic, "its prompts or dynamic instructions"),
        (_history, "the messages, or a history processor that changes them"),
        (_settings, "its model settings"),
        (_prepared, "its tools, its output type"),
    ],
)
async def test_what_differs_on_a_replay_is_named_and_nothing_is_sent(make: Callable[[Fickle], Any], says: str) -> None:
    agent, items = make(Fickle()), []

    @agent.tool_plain
    def look() -> str:
        return "seen"

    inner = agent.model.function

    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        items.append(len(messages))
        return inner(messages, info)  # type: ignore[no-any-return]

    agent.model = FunctionModel(say)
    declared = {"look": PURE} | ({"other": PURE} if make is _prepared else {})
    story = Story(thinking(agent, tools=declared), retry=IN_PLACE, kill_at=[("CP4", "model")])
    story.kill_at.append(("CP6", "look"))
    for _ in range(8):
        if await story.drive() in ("operator", "completed"):
            break
    assert story.found.reason == "non_determinism"
    assert says in story.found.payload["problem"]
    assert "ctx.now()" in story.found.payload["problem"]


async def test_an_output_validator_that_changes_its_mind_is_found() -> None:
    fickle = Fickle()
    agent = Agent(calling("first", [("look", {})], "second"))

    @agent.tool_plain
    def look() -> str:
        return "seen"

    @agent.output_validator
    def check(output: str) -> str:
        if fickle() == 1:
            raise ModelRetry("once more")
        return output

    story = Story(thinking(agent, tools={"look": PURE}), retry=IN_PLACE, kill_at=[("CP6", "look")])
    await story.settle()
    assert story.found.reason == "non_determinism"
    assert "An output validator" in story.found.payload["problem"]


# --- results of a tool ------------------------------------------------------------------------------------------------


async def test_a_time_limit_of_an_unsafe_tool_is_an_unknown_outcome_and_no_refusal() -> None:
    """Pydantic AI would tell the model to try again, and so pay twice."""
    agent = Agent(calling([("pay", {})], "{}"))
    begun = []

    @agent.tool_plain(timeout=0.05)
    async def pay() -> str:
        begun.append(this_call().attempt)
        await asyncio.Event().wait()
        return "paid"

    story = await settled(agent, tools={"pay": UNSAFE})
    assert begun == [0]
    assert story.facts() == ["pending", "unknown"]
    story.reconcile("happened", receipt="paid")
    await story.settle()
    assert story.output == "success: paid" and begun == [0]


@each_case(
    ("receipt", "told"),
    # given nothing, a model would repeat the call
    [(None, "This call happened"), ({}, "Don't make it again"), ("paid", "paid"), ({"id": 7}, '{"id":7}')],
)
async def test_what_a_person_knows_of_a_call_that_happened_is_its_answer(receipt: Any, told: str) -> None:
    agent = Agent(calling([("pay", {})], "{}"))

    @agent.tool_plain
    def pay() -> None:
        raise OSError("gone")

    story = await settled(agent, tools={"pay": UNSAFE})
    story.reconcile("happened", receipt=receipt)
    await story.settle()
    assert story.output.startswith("success: ") and told in story.output


async def test_nor_is_one_that_only_its_toolset_knows() -> None:
    inner: FunctionToolset[None] = FunctionToolset(timeout=0.01)
    agent = Agent(calling([("bank_pay", {})], "{}"), toolsets=[inner.prefixed("bank")])

    @inner.tool_plain
    async def pay() -> str:
        late = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, late.set)
        await late.wait()
        return "paid"

    story = await settled(agent, tools={"bank_pay": UNSAFE})
    assert story.output == "success: paid" and story.facts() == ["pending", "committed"]


async def test_a_time_limit_of_all_its_tools_is_the_engines() -> None:
    made = durable(Agent(TestModel(), tools=[_quick], tool_timeout=7.0), name="it", tools={"_quick": PURE})
    assert [tool.timeout for tool in made.tools] == [7.0]


def _quick() -> str:
    return "done"


@each_case("replay_class", [KEYED, UNSAFE])
async def test_an_outage_is_tried_again_where_the_class_allows_it(replay_class: ReplayClass) -> None:
    agent = Agent(calling([("pay", {})], "{}"))
    keys = []

    @agent.tool_plain
    def pay() -> str:
        keys.append(this_call().key)
        if len(keys) == 1:
            raise httpx.ConnectError("refused")
        return "paid"

    story = await settled(agent, tools={"pay": replay_class})
    if replay_class is UNSAFE:
        assert keys == [None] and story.facts() == ["pending", "unknown"], "who knows what it had sent before"
    else:
        assert story.output == "success: paid" and len(keys) == 2 and len(set(keys)) == 1


async def test_a_no_of_a_tool_is_told_again_on_a_replay_and_never_made_again() -> None:
    agent = Agent(calling([("book", {"room": 1})], [("book", {"room": 2})], "{}"))
    booked = []

    @agent.tool
    def book(ctx: RunContext[None], room: int) -> str:
        booked.append((room, ctx.retry))
        if room == 1:
            raise ModelRetry("taken")
        return "yours"

    story = Story(thinking(agent, tools={"book": UNSAFE}), retry=IN_PLACE, kill_at=[("CP6", "book"), ("CP2", "model")])
    await story.settle()
    await story.settle()
    assert story.output == "success: yours"
    assert booked == [(1, 0), (2, 1)], "and the count of retries is the same"
    assert story.facts() == ["pending", "failed", "pending", "committed"]


async def test_what_a_tool_says_besides_its_answer_is_on_record_too() -> None:
    agent = Agent(calling([("look", {})], "{}"))
    looked = []

    @agent.tool_plain
    def look() -> ToolReturn:
        looked.append(1)
        return ToolReturn(return_value={"n": 1}, content=["Seen from above."], metadata={"by": "me"})

    story = Story(thinking(agent, tools={"look": PURE}), retry=IN_PLACE, kill_at=[("CP6", "look"), ("CP2", "model")])
    await story.settle()
    await story.settle()
    assert "Seen from above." in story.output and looked == [1]


async def test_a_set_is_refused_since_its_order_differs() -> None:
    agent = Agent(calling([("tag", {"tags": ["a", "b"]})], "{}"))

    @agent.tool_plain
    def tag(tags: set[str]) -> str:
        raise AssertionError("never called")

    story = await settled(agent, tools={"tag": UNSAFE})
    assert "the arguments of tag" in story.failure.payload["message"]
    assert story.facts() == []


async def test_a_bug_in_an_unsafe_tool_is_for_a_person_and_in_a_pure_one_fails_the_run() -> None:
    agent = Agent(calling([("break_it", {})], "{}"))

    @agent.tool_plain
    def break_it() -> str:
        raise ZeroDivisionError("oops")

    unsafe = await settled(agent, tools={"break_it": UNSAFE})
    assert unsafe.waiting("reconcile")
    pure = await settled(agent, tools={"break_it": PURE})
    assert "ZeroDivisionError: oops" in pure.failure.payload["message"]


async def test_of_a_huge_answer_the_model_is_shown_the_two_ends() -> None:
    agent = Agent(calling([("read_all", {})], "{}"))

    @agent.tool_plain
    def read_all() -> str:
        return "a" * 500_000

    story = await settled(agent, tools={"read_all": PURE})
    assert '"too_large":true' in story.output and len(story.output) < 70_000


async def test_a_call_that_waits_lets_the_others_finish_and_is_no_hurry() -> None:
    done, first = [], asyncio.Event()
    agent = Agent(calling([("slow", {"n": 1}), ("gated", {}), ("slow", {"n": 2})], "{}"))

    @agent.tool_plain
    async def slow(n: int) -> int:
        if n == 2:
            await first.wait()
            await turns(200)
        done.append(n)
        first.set()
        return n

    @agent.tool_plain
    def gated() -> str:
        return "yes"

    story = await settled(agent, tools={"slow": UNSAFE, "gated": PURE}, gates={"gated": Gate("legal", "r")})
    assert done == [1, 2] and story.waiting("approval"), "both are on record before the run waits"
    story.decide()
    await story.settle()
    assert story.output == "success: 1; success: yes; success: 2" and done == [1, 2]


async def test_sequential_tools_keep_their_order_over_a_wait() -> None:
    done = []
    agent = Agent(calling([("one", {}), ("two", {})], "{}"))

    @agent.tool_plain(sequential=True)
    def one() -> str:
        done.append(1)
        return "1"

    @agent.tool_plain(sequential=True)
    def two() -> str:
        done.append(2)
        return "2"

    story = await settled(agent, tools={"one": UNSAFE, "two": UNSAFE}, gates={"one": Gate("legal", "r")})
    assert done == []
    story.decide()
    await story.settle()
    assert (story.output, done) == ("success: 1; success: 2", [1, 2])
