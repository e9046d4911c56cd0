from __future__ import annotations

from collections import Counter

import pytest
from pydantic_ai import Agent

from durableagents import ReplayClass
from durableagents.testing import Harness, StoryProblem, calls, says
from tests.cases import each_case
from tests.contrib.pydantic_ai.samples import calling, thinking
from tests.contrib.replay.test_replays import difference, on_file
from tests.unit.engine.conftest import _agents_of_this_test

__all__ = ["_agents_of_this_test"]


def booking(model: object, done: Counter[str]) -> Agent[None, str]:
    agent: Agent[None, str] = Agent(model, name="booker", defer_model_check=True)  # type: ignore[arg-type]

    @agent.tool_plain
    def book(room: str) -> str:
        """Book a room."""
        done[room] += 1
        return f"booked {room}"

    return agent


HOW = {"tools": {"book": ReplayClass.IDEMPOTENT_WITH_KEY}}


@each_case("point", ["", "before_effect", "after_effect", "after_record"])
def test_its_tools_are_effects_and_it_replays(point: str) -> None:
    done: Counter[str] = Counter()
    agent = thinking(booking(calling([("book", {"room": "blue"})], "It is done."), done), **HOW)
    story = Harness(agent, {}, kill=[(point, "book")] if point else [])
    story.assert_completed("It is done.")
    story.assert_effects([("book", {"room": "blue"})])
    story.assert_each_effect_once()
    story.assert_replays()
    before = sum(done.values())
    assert [difference(recording, agent) for recording in on_file(story)] == [""] and sum(done.values()) == before


def test_its_model_says_what_the_test_says() -> None:
    done: Counter[str] = Counter()
    agent = thinking(booking("openai:gpt-5", done), **HOW)
    turns = [calls("book", room="red"), says("Red it is.")]
    story = Harness(agent, {}, models={"it": turns})
    story.assert_completed("Red it is.")
    story.assert_replays()
    assert done == {"red": 1}


def test_no_provider_is_asked() -> None:
    agent = thinking(booking("openai:gpt-5", Counter()), **HOW)
    with pytest.raises(StoryProblem, match="assistant 'it' is asked and has nothing to say"):
        Harness(agent, {})
