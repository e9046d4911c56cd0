from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Assistant, Context, End, ModelFailure
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.assistants import SCRIPTED, UNAVAILABLE, ModelRefused, ModelTurn
from runs.engine.budget import Caps, Price
from runs.engine.errors import DefinitionError, NotServed, TransportError
from runs.engine.thinking.request import request_model
from tests.cases import each_case
from tests.tiers import LONG
from tests.unit.engine.story import Story
from tests.world import Done, Killed, Notes, Toolbox, agent_of

FIRST, SECOND = "one:small", "two:large"


class Market:
    """Providers by model, which answer or do what is named; every request is kept."""

    def __init__(self, **does: Any) -> None:
        self.does, self.asked = does, []  # type: ignore[var-annotated]

    async def __call__(self, assistant: Assistant, messages: list[Any], model: str) -> ModelTurn:
        self.asked.append(model)
        trouble = self.does.get(model.partition(":")[0])
        if trouble is not None:
            raise trouble
        turn = await request_model(assistant, messages)
        return replace(turn, model=f"{model}-2026")


def thinking(*models: str, offline: Any = None, **more: Any) -> Agent:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "done"})])

    assistant = Assistant(
        name="mind", instructions="Think.", output=Done, offline=offline or answer, models=models, **more
    )

    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.think(assistant, "Do it.")).ref)
        except ModelFailure as failure:
            return End([failure.code, failure.message])

    return agent_of(node, assistants=[assistant])


async def test_whom_it_may_ask_and_how_is_on_record_before_the_first_request() -> None:
    story = Story(thinking(FIRST, SECOND, temperature=0.5), model=Market(), kill_at=[("CP2", "model")])
    assert await story.drive() == "killed"
    (chosen,) = story.events(e.ModelsChosen)
    (routed,) = story.events(e.ModelRouted)
    assert (chosen.models, chosen.assistant, chosen.by) == ([FIRST, SECOND], "mind", "system:settings")
    assert (routed.model, routed.payload) == (FIRST, {"settings": {"timeout": 300.0, "temperature": 0.5}})
    assert await story.settle() == "completed"
    (answered,) = story.events(e.ModelResponded)
    assert answered.payload["model"] == f"{FIRST}-2026"


async def test_a_run_keeps_its_models_when_the_setting_changes() -> None:
    market = Market()
    story = Story(thinking(FIRST), model=market, kill_at=[("CP2", "model")])
    assert await story.drive() == "killed"
    assert await story.drive(thinking(SECOND)) == "completed"
    assert market.asked == [FIRST] and len(story.events(e.ModelsChosen)) == 1


@each_case(("whose", "expected"), [("", SECOND), ("mind", SECOND), ("another", FIRST)])
async def test_it_is_moved_by_what_the_journal_says_last(whose: str, expected: str) -> None:
    market = Market()
    story = Story(thinking(FIRST), model=market, kill_at=[("CP2", "model")])
    assert await story.drive() == "killed"
    story.run.append([e.ModelsChosen(slot="models", n=1, assistant=whose, models=[SECOND], by="user:olga")])
    assert await story.drive() == "completed"
    assert market.asked == [expected]


@each_case(
    ("trouble", "estimates"),
    [(NotServed("503"), 0), (TransportError("no answer"), 1), (ModelRefused(UNAVAILABLE, "no credit"), 0)],
)
async def test_where_one_does_not_serve_the_next_is_asked(trouble: Exception, estimates: int) -> None:
    market = Market(one=trouble)
    story = Story(
        thinking(FIRST, SECOND), model=market, prices={FIRST: PRICE, SECOND: PRICE}, caps=Caps(usd_micro=10**9)
    )
    assert await story.drive() == "completed" and story.output == "done"
    assert set(market.asked[:-1]) == {FIRST} and market.asked[-1] == SECOND
    assert sum(debit.is_estimate for debit in story.events(e.BudgetDebited)) >= estimates
    assert [r.model for r in story.events(e.ModelRouted)][-1] == SECOND
    assert len(story.events(e.BudgetDebited)) == len(story.events(e.ModelRouted))
    assert story.events(e.WaitOpened) == []


PRICE = Price(7, "any", 1_000_000, 2_000_000)


async def test_a_refusal_of_the_request_itself_is_not_taken_elsewhere() -> None:
    market = Market(one=ModelRefused("model_refused", "that is against our rules"))
    story = Story(thinking(FIRST, SECOND), model=market)
    assert await story.drive() == "completed" and story.output[0] == "model_refused"
    assert market.asked == [FIRST]


async def test_where_none_serves_it_waits_and_begins_with_the_first_again() -> None:
    market = Market(one=NotServed("503"), two=NotServed("503"))
    story = Story(thinking(FIRST, SECOND), model=market)
    assert await story.drive() == "parked"
    market.does.clear()
    market.asked.clear()
    assert await story.settle() == "completed"
    assert market.asked == [FIRST]


async def test_the_last_that_is_not_to_be_had_fails_it_by_name() -> None:
    gone = ModelRefused(UNAVAILABLE, "no such model")
    story = Story(thinking(FIRST, SECOND), model=Market(one=gone, two=gone))
    assert await story.drive() == "completed" and story.output[0] == UNAVAILABLE
    assert [f.code for f in story.events(e.ModelFailed)] == [UNAVAILABLE]


async def test_branches_that_begin_at_once_put_each_choice_on_record_once() -> None:
    made = [thinking(FIRST).assistants[0], replace(thinking(SECOND).assistants[0], name="other")]

    async def node(state: Notes, ctx: Context) -> End:
        gather = await ctx.gather(*(ctx.think(made[i % 2], f"Part {i}.") for i in range(6)))
        return End([each.ref for each in gather])

    story = Story(agent_of(node, assistants=made), model=Market())
    assert await story.drive() == "completed"
    assert [(c.n, c.models) for c in story.events(e.ModelsChosen)] == [(0, [FIRST]), (1, [SECOND])]


@each_case(
    "models", [["gpt"], ["a:b", "a:b"], "openai:gpt", [f"a:{i}" for i in range(9)], ["a:b c"], [f"{SCRIPTED}x"], [7]]
)
def test_what_is_no_list_of_models_is_refused_by_name(models: Any) -> None:
    with pytest.raises(DefinitionError, match=r"mind.*models"):
        Assistant(name="mind", instructions="", output=Done, models=models)


@each_case("more", [{"window": 10}, {"window": "big"}, {"max_repairs": -1}, {"temperature": 3}])
def test_what_is_no_setting_is_refused_by_name(more: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(more))):
        Assistant(name="mind", instructions="", output=Done, **more)


# --- useless answers --------------------------------------------------------------------------------------------------


def wrong(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("final_result", {"wrong": 1})])


@each_case("repairs", [0, 2])
async def test_answers_of_no_use_end_it_after_a_few(repairs: int) -> None:
    market = Market()
    story = Story(thinking(FIRST, offline=wrong, max_repairs=repairs), model=market)
    assert await story.drive() == "completed" and story.output[0] == "no_valid_answer"
    assert len(market.asked) == repairs + 1


async def test_what_is_on_record_is_replayed_even_beyond_the_limit_of_today() -> None:
    """An installation that allowed more has runs that continue."""

    def learns(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(m, ModelResponse) for m in messages)
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "late"} if turn == 4 else {"wrong": 1})])

    market = Market()
    story = Story(thinking(FIRST, offline=learns, max_repairs=9), model=market, kill_at=[("CP2", "model")])
    story.kill_at = []
    story._hit = die_at(market, 5)  # type: ignore[method-assign]
    assert await story.drive() == "killed"
    assert await story.drive(thinking(FIRST, offline=learns, max_repairs=1)) == "completed"
    assert story.output == "late"


def die_at(market: Market, count: int) -> Any:
    """Return a hook that dies once, at the answer to request number `count`."""
    deaths = iter([Killed("once")])

    def hit(point: str, tool: str) -> None:
        if (point, tool) == ("CP4", "model") and len(market.asked) == count and (death := next(deaths, None)):
            raise death

    return hit


# --- a long conversation ----------------------------------------------------------------------------------------------


def _texts(messages: list[ModelMessage]) -> list[Any]:
    return [(getattr(p, "content", None), getattr(p, "args", None)) for m in messages for p in m.parts]


class Long:
    """Looks up one item after the other by the earlier results, and records its input."""

    def __init__(self, turns: int) -> None:
        self.turns, self.shown = turns, []  # type: ignore[var-annotated]

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.shown.append(list(messages))
        item = max(map(int, re.findall(r"item ([0-9]+)", str(_texts(messages)))), default=0) + 1
        if item >= self.turns:
            return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "end"}, "last")])
        return ModelResponse(parts=[ToolCallPart("look", {"name": f"item {item}"}, "call_look")])


def talking(tools: Toolbox, mind: Any, window: int | None, *, turns: int, prompt: str = "Go through all.") -> Agent:
    assistant = Assistant(
        name="mind",
        instructions="Think.",
        output=Done,
        tools=tools.all(),
        offline=mind,
        max_turns=turns + 5,
        window=window,
    )

    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.think(assistant, prompt)).ref)
        except ModelFailure as failure:
            return End([failure.code, failure.message])

    return agent_of(node, assistants=[assistant])


WINDOW = 1400


async def test_a_conversation_that_nears_the_window_is_made_short_on_the_record(tools: Toolbox) -> None:
    mind = Long(60)
    story = Story(talking(tools, mind, WINDOW, turns=60))
    assert await story.drive() == "completed" and story.output == "end"
    made = story.events(e.TranscriptCompacted)
    assert len(made) > 1
    for each in made:
        assert each.tokens_after < each.tokens_before <= WINDOW and each.model == f"{SCRIPTED}mind"
        assert len(each.payload["of"]) == each.messages and each.messages % 2 == 0
    routed = [r.tokens_in for r in story.events(e.ModelRouted)]
    assert max(routed) <= WINDOW
    first, *rest = mind.shown[-1]
    assert isinstance(first, ModelRequest) and [type(p) for p in first.parts] == [UserPromptPart, UserPromptPart]
    assert first.parts[0].content == "Go through all." and "item 1" not in str(first.parts[0].content)
    assert isinstance(rest[0], ModelResponse), "a turn's calls and their answers stay together"
    tool_call_ids = {
        p.tool_call_id for m in rest if isinstance(m, ModelResponse) for p in m.parts if isinstance(p, ToolCallPart)
    }
    given = {
        p.tool_call_id for m in rest if isinstance(m, ModelRequest) for p in m.parts if isinstance(p, ToolReturnPart)
    }
    assert tool_call_ids == given


async def test_a_resumed_one_is_as_short_as_it_was_and_nothing_is_made_short_twice(tools: Toolbox) -> None:
    """The worker dies at the first request, around each compaction, and at the last."""
    calm_mind = Long(24)
    calm = Story(talking(tools, calm_mind, WINDOW, turns=24))
    assert await calm.drive() == "completed"
    requested = [each.slot for each in calm.events(e.ModelRequested)]
    made = [requested.index(each.slot) + 1 for each in calm.events(e.TranscriptCompacted)]
    usual = {1, made[0], made[0] + 1, made[-1], len(requested)}
    for at in range(1, len(requested) + 1) if LONG in os.environ else sorted(usual):
        market, mind = Market(), Long(24)
        story = Story(talking(tools, mind, WINDOW, turns=24), model=market)
        story._hit = die_at(market, at)  # type: ignore[method-assign]
        assert await story.settle() == "completed"
        of = [x.payload["of"] for x in story.events(e.TranscriptCompacted)]
        assert of == [x.payload["of"] for x in calm.events(e.TranscriptCompacted)], at
        assert _texts(mind.shown[-1]) == _texts(calm_mind.shown[-1]), at


@each_case("window", [None, WINDOW * 4])
async def test_what_is_on_record_decides_whatever_the_window_is_now(tools: Toolbox, window: int | None) -> None:
    """Also where the compaction was requested and unanswered."""
    market, mind = Market(), Long(24)
    story = Story(talking(tools, mind, WINDOW, turns=24), model=market)
    calm = Story(talking(tools, Long(24), WINDOW, turns=24))
    await calm.drive()
    first = calm.events(e.TranscriptCompacted)[0]
    at = [r.slot for r in calm.events(e.ModelRequested)].index(first.slot) + 1
    story._hit = die_at(market, at)  # type: ignore[method-assign]
    assert await story.drive() == "killed"
    assert await story.drive(talking(tools, mind, window, turns=24)) == "completed"
    assert story.events(e.TranscriptCompacted)[0].slot == first.slot


@each_case("prompt", ["x" * 3 * WINDOW, "x" * 10 * WINDOW])
async def test_what_can_not_be_made_short_is_refused_before_it_is_asked(tools: Toolbox, prompt: str) -> None:
    market = Market()
    story = Story(talking(tools, Long(3), WINDOW, turns=3, prompt=prompt), model=market)
    assert await story.drive() == "completed" and story.output[0] == "window_exceeded"
    assert str(WINDOW) in story.output[1] and market.asked == []


async def test_a_summary_that_can_not_be_read_fails_the_thought_and_not_the_record(tools: Toolbox) -> None:
    market, mind = Market(), Long(40)

    async def mute(assistant: Assistant, messages: list[Any], model: str) -> ModelTurn:
        if assistant.tools:
            return await market(assistant, messages, model)
        return ModelTurn(model, {"parts": [], "kind": "response"}, 10, 1)

    story = Story(talking(tools, mind, WINDOW, turns=40), model=mute)
    assert await story.drive() == "completed" and story.output[0] == "compaction_failed"
    assert story.events(e.TranscriptCompacted) == []


async def test_an_answer_that_is_too_large_is_shown_by_its_ends_and_its_digest(tools: Toolbox) -> None:
    from runs.engine.thinking.sizes import MAX_OBSERVATION, fit_answer

    whole = {"text": "é" * 2 * MAX_OBSERVATION, "end": 1}
    seen = fit_answer(whole, None)
    assert seen["too_large"] and seen["characters"] > 2 * MAX_OBSERVATION and len(seen["sha256"]) == 64
    assert len(seen["beginning"]) + len(seen["end"]) < MAX_OBSERVATION
    assert fit_answer({"a": 1}, 1000) == {"a": 1} and fit_answer("x" * 800, 1000)["too_large"]
    assert fit_answer("\ud800" * 800, 1000)["too_large"], "half a pair of surrogates has a digest too"
