"""The engine's own model loop: every turn and tool call is a step, and no turn is asked twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from durableagents import (
    Assistant,
    BusinessFailure,
    Context,
    End,
    ModelFailure,
    NotSent,
    ReplayClass,
    ToolCall,
    TransportError,
    tool,
)
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.assistants import ModelRefused, ModelTurn
from runs.engine.thinking.request import request_model
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import Done, Item, Killed, Notes, Outside, Toolbox, agent_of


def call(tool: str, /, **args: Any) -> ToolCallPart:
    return ToolCallPart(tool, args)


def final(ref: str = "done") -> ToolCallPart:
    return call("final_result", ref=ref)


class Mind:
    """A scripted model that records its input. `turns[i]` is its i-th turn in a conversation."""

    def __init__(self, *turns: list[Any]) -> None:
        self.turns, self.shown = turns, []  # type: ignore[var-annotated]

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.shown.append(list(messages))
        turn = sum(isinstance(m, ModelResponse) for m in messages)
        return ModelResponse(parts=self.turns[min(turn, len(self.turns) - 1)])

    def answers(self) -> list[Any]:
        last = self.shown[-1][-1]
        assert isinstance(last, ModelRequest)
        return list(last.parts)


def thinking(tools: Toolbox, mind: Any, *, max_turns: int = 6, prompt: str = "Do it.") -> Agent:
    assistant = Assistant(
        name="mind", instructions="Think.", output=Done, tools=tools.all(), offline=mind, max_turns=max_turns
    )

    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.think(assistant, prompt)).ref)
        except ModelFailure as failure:
            return End([failure.code, failure.message])

    return agent_of(node, assistants=[assistant])


async def test_several_turns_and_tools_end_in_a_result(tools: Toolbox, outside: Outside) -> None:
    mind = Mind([call("look", name="a"), call("order", name="b")], [call("mail", name="c")], [final("all")])
    story = Story(thinking(tools, mind))
    assert await story.drive() == "completed" and story.output == "all"
    assert [r.slot for r in outside.requests] == ["0.1/1/0/1", "0.1/1/0/2", "0.1/1/1/1"]
    assert [event.slot for event in story.events(e.ModelResponded)] == ["0.1/1/0/0", "0.1/1/1/0", "0.1/1/2/0"]
    assert [event.turn for event in story.events(e.ModelRequested)] == [0, 1, 2]
    assert story.run.used.steps == 6


@pytest.mark.parametrize("point", ["CP1", "CP2", "CP4", "CP6"])
@pytest.mark.parametrize("victim", ["", "model", "order"])
async def test_no_recorded_turn_is_asked_again(tools: Toolbox, outside: Outside, point: str, victim: str) -> None:
    """A crash costs at most the one request under way."""
    mind = Mind([call("order", name="a")], [call("look", name="b")], [final()])
    story = Story(thinking(tools, mind), kill_at=[(point, victim)])
    assert await story.settle() == "completed"
    assert len(mind.shown) <= 3 + ((point, victim) == ("CP4", "model"))
    assert len(outside.executed("order")) == 1
    assert len(story.events(e.ModelResponded)) == 3


async def test_a_restored_conversation_is_what_the_model_saw_before(tools: Toolbox) -> None:
    mind = Mind([call("look", name="a"), call("order", name="b", amount=2)], [final()])
    story = Story(thinking(tools, mind), kill_at=[("CP4", "model")])
    story.kill_at = []

    def die_once(point: str, tool: str) -> None:
        if (point, tool) == ("CP4", "model") and len(mind.shown) == 2:
            raise Killed

    story._hit = die_once  # type: ignore[method-assign]
    assert await story.drive() == "killed"
    assert await story.drive() == "completed"
    before, after = (_without_times(entry) for entry in mind.shown[1:3])
    assert before == after


def _without_times(messages: list[ModelMessage]) -> list[Any]:
    return [
        (type(p).__name__, getattr(p, "content", None), getattr(p, "args", None)) for m in messages for p in m.parts
    ]


async def test_a_refusal_comes_back_as_text_and_is_not_asked_again(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", BusinessFailure("we don't sell to you", code="banned"))
    mind = Mind([call("order", name="a")], [final()])
    story = Story(thinking(tools, mind), kill_at=[("CP1", "")])
    assert await story.settle() == "completed"
    (answer,) = mind.answers()
    assert isinstance(answer, ToolReturnPart)
    assert answer.content == {"failed": "banned", "message": "we don't sell to you"}


async def test_gate_in_the_loop_tells_the_model_a_rejection(tools: Toolbox, outside: Outside) -> None:
    mind = Mind([call("pay", name="po", amount=84_000)], [call("pay", name="po", amount=9)], [final()])
    story = Story(thinking(tools, mind))
    assert await story.drive() == "parked" and outside.requests == []
    story.decide("rejected", "at most $10")
    assert await story.drive() == "completed"
    tell = [p for m in mind.shown[1] for p in m.parts if isinstance(p, ToolReturnPart)]
    assert tell[0].content == {"rejected_by": "finance_po", "reason": "at most $10"}
    assert [json.loads(r.body)["amount"] for r in outside.requests] == [9]


async def test_an_unsafe_call_in_the_loop_is_unknown_like_any_other(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("mail", TransportError("cut"), when="after")
    mind = Mind([call("mail", name="a")], [final()])
    story = Story(thinking(tools, mind))
    assert await story.drive() == "parked"
    story.reconcile("happened", receipt={"ref": "seen"})
    assert await story.drive() == "completed" and len(outside.seen("mail")) == 1
    assert len(mind.shown) == 2


async def test_calls_of_one_turn_are_concurrent_and_answered_in_order(tools: Toolbox, outside: Outside) -> None:
    order_is_done = asyncio.Event()

    async def wait(call: Any) -> None:
        await order_is_done.wait()

    async def done(call: Any) -> None:
        order_is_done.set()

    outside.trouble("look", wait)
    outside.trouble("order", done, when="after")
    mind = Mind([call("look", name="a"), call("launch_rocket"), call("order", name="b")], [final()])
    story = Story(thinking(tools, mind))
    assert await asyncio.wait_for(story.drive(), 20) == "completed", "the first call waits for the last"
    assert [p.tool_name for p in mind.answers()] == ["look", "launch_rocket", "order"]
    assert sorted(r.slot for r in outside.requests) == ["0.1/1/0/1", "0.1/1/0/3"]
    assert not story.events(e.BranchesOpened), "the recorded turn says how many there are"


async def test_a_sequential_tool_makes_its_whole_turn_one_after_the_other(tools: Toolbox, outside: Outside) -> None:
    seen: list[str] = []

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, sequential=True)
    async def file(args: Item, call: ToolCall) -> Done:
        """File it."""
        seen.append(f"file after {len(outside.requests)}")
        return Done(ref="filed")

    async def slowly(call: Any) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    outside.trouble("look", slowly)
    outside.trouble("order", slowly)
    tools.file = file  # type: ignore[attr-defined]
    mind = Mind([call("look", name="a"), call("file", name="b"), call("order", name="c")], [final()])
    story = Story(thinking(tools, mind))
    assert await story.drive() == "completed" and seen == ["file after 1"]
    assert [r.tool for r in outside.requests] == ["look", "order"]


async def test_two_gates_of_one_turn_are_open_at_once(tools: Toolbox, outside: Outside) -> None:
    mind = Mind([call("pay", name="a", amount=5000), call("wire", name="b", amount=7000)], [final()])
    story = Story(thinking(tools, mind))
    assert await story.drive() == "parked" and len(story.waiting("approval")) == 2
    story.decide("rejected", "no", slot="0.1/1/0/2")
    assert await story.drive() == "parked" and outside.requests == []
    story.decide("approved", slot="0.1/1/0/1")
    assert await story.drive() == "completed" and [r.tool for r in outside.requests] == ["pay"]
    assert [getattr(p, "content", {}).get("rejected_by") for p in mind.answers()] == [None, "finance_po"]


async def test_only_calls_before_a_final_result_are_made(tools: Toolbox, outside: Outside) -> None:
    mind = Mind([call("order", name="a"), final("early"), call("mail", name="b")])
    story = Story(thinking(tools, mind))
    assert await story.drive() == "completed" and story.output == "early"
    assert [r.tool for r in outside.requests] == ["order"]


async def test_two_calls_of_one_tool_in_one_turn_are_two_calls(tools: Toolbox, outside: Outside) -> None:
    mind = Mind([call("order", name="a"), call("order", name="a")], [final()])
    assert await Story(thinking(tools, mind)).drive() == "completed"
    assert len(outside.executed("order")) == 2 and len({r.key for r in outside.requests}) == 2


async def test_final_result_with_other_calls_ends_the_loop_first(tools: Toolbox, outside: Outside) -> None:
    story = Story(thinking(tools, Mind([final("first"), call("mail", name="after")])))
    assert await story.drive() == "completed" and story.output == "first"
    assert outside.requests == []


async def test_a_model_that_never_ends_is_stopped(tools: Toolbox, outside: Outside) -> None:
    story = Story(thinking(tools, Mind([call("look", name="again")]), max_turns=4))
    assert await story.drive() == "completed"
    assert story.output[0] == "too_many_turns" and len(outside.seen("look")) == 4


async def test_two_thoughts_of_one_visit_have_conversations_of_their_own(tools: Toolbox) -> None:
    mind = Mind([call("look", name="a")], [final()])
    assistant = Assistant(name="mind", instructions="Think.", output=Done, tools=[tools.look], offline=mind)

    async def node(state: Notes, ctx: Context) -> End:
        return End([(await ctx.think(assistant, prompt)).ref for prompt in ("one", "two")])

    story = Story(agent_of(node, assistants=[assistant]), kill_at=[("CP6", "look")])
    assert await story.settle() == "completed"
    assert len(mind.shown) == 4
    assert {event.conversation for event in story.events(e.ModelRequested)} == {"0.1/1", "0.1/2"}


# --- the provider ---


def flaky(*troubles: BaseException) -> Any:
    left = list(troubles)

    async def request(assistant: Assistant, messages: list[Any], model: str) -> ModelTurn:
        if left:
            raise left.pop(0)
        return await request_model(assistant, messages)

    return request


@each_case("error", [TransportError("503"), NotSent("refused"), TimeoutError()])
async def test_an_outage_of_the_provider_never_fails_a_run(tools: Toolbox, error: Exception) -> None:
    story = Story(thinking(tools, Mind([final()])), model=flaky(error, error, error))
    assert await story.settle() == "completed"
    assert len(story.events(e.WaitOpened)) == 3 and len(story.events(e.ModelRequested)) == 1


async def test_a_providers_refusal_is_recorded_and_a_retry_asks_again(tools: Toolbox) -> None:
    story = Story(thinking(tools, Mind([final()])), model=flaky(ModelRefused("model_refused", "no such model")))
    assert await story.drive() == "completed"
    assert story.output == ["model_refused", "no such model"]

    async def node(state: Notes, ctx: Context) -> End:
        assistant = Assistant(name="mind", instructions="", output=Done, offline=Mind([final()]))
        return End((await ctx.think(assistant, "x")).ref)

    failing = Story(agent_of(node), model=flaky(ModelRefused("model_refused", "no such model")))
    assert await failing.drive() == "failed" and failing.failure.code == "model_refused"
    failing.retry_run()
    assert await failing.drive() == "completed"
    assert [event.attempt for event in failing.events(e.ModelRequested)] == [0, 1]


@each_case("error", [KeyError("a bug"), asyncio.CancelledError()])
async def test_a_bug_around_the_model_fails_the_run_and_no_node_hides_it(tools: Toolbox, error: BaseException) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.model(Assistant(name="mind", instructions="", output=Done), "x")
        except Exception:
            return End("hidden")
        return End("fine")

    story = Story(agent_of(node), model=flaky(error))
    assert await story.drive() == "failed" and story.failure.code == "model_error"


async def test_an_answer_that_is_no_json_fails_the_run_once(tools: Toolbox) -> None:
    async def odd(assistant: Assistant, messages: list[Any], model: str) -> ModelTurn:
        return ModelTurn("m", {"parts": [float("nan")]}, 1, 1)

    story = Story(thinking(tools, Mind([final()])), model=odd)
    assert await story.drive() == "failed" and story.failure.code == "model_error"


async def test_a_plain_model_request_is_a_step_too(tools: Toolbox) -> None:
    mind = Mind([TextPart("forty-two")])
    assistant = Assistant(name="mind", instructions="", output=Done, offline=mind)

    async def node(state: Notes, ctx: Context) -> End:
        model = await ctx.model(assistant, "what?")
        await ctx.sleep(0)
        return End(model)

    story = Story(agent_of(node, assistants=[assistant]))
    assert await story.settle() == "completed" and story.output == "forty-two"
    assert len(mind.shown) == 1


async def test_a_cancel_does_not_wait_for_the_models_answer(tools: Toolbox) -> None:
    event = asyncio.Event()

    async def silent(assistant: Assistant, messages: list[Any], model: str) -> ModelTurn:
        event.set()
        await asyncio.Event().wait()
        raise AssertionError

    story = Story(thinking(tools, Mind([final()])), model=silent)
    driving = asyncio.create_task(story.drive())
    await event.wait()
    story.run.is_cancel_requested = True
    story.control.ask("cancel")
    assert await driving == "cancelled"


async def test_what_is_only_known_is_counted(tools: Toolbox) -> None:
    """Tokens and calls come from the provider's own figures, once per recorded turn."""

    async def counted(assistant: Assistant, messages: list[Any], model: str) -> ModelTurn:
        turn = await request_model(assistant, messages)
        return ModelTurn(turn.model, turn.response, 100, 7)

    story = Story(thinking(tools, Mind([call("look", name="a")], [final()])), model=counted, kill_at=[("CP6", "model")])
    assert await story.settle() == "completed"
    assert [(event.tokens_in, event.tokens_out) for event in story.events(e.ModelResponded)] == [(100, 7)] * 2


async def test_items_are_validated_before_a_tool_sees_them(tools: Toolbox, outside: Outside) -> None:
    mind = Mind([ToolCallPart("look", '{"name": "a", "amount": "12"}')], [final()])
    assert await Story(thinking(tools, mind)).drive() == "completed"
    assert json.loads(outside.requests[0].body) == Item(name="a", amount=12).model_dump()
