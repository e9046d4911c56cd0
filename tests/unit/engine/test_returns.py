from __future__ import annotations

import asyncio
import sys
import warnings
from typing import Any

from pydantic import BaseModel

from durableagents import Context, End, Failure
from ledger import events as e
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import Asked, Item, Notes, Toolbox, agent_of


class Typed(BaseModel):
    total: int


class Strict(BaseModel):
    model_config = {"validate_assignment": False}

    amount: int = 0
    share: float = 0.0
    anything: Any = None


def returning(value: Any, **more: Any) -> Story:
    async def node(state: Any, ctx: Context) -> Any:
        return value() if callable(value) else value

    return Story(agent_of(node, **more))


@each_case(
    ("value", "code"),
    [
        (None, "bad_return"),
        (7, "bad_return"),
        (End, "bad_edge"),
        ("nowhere", "bad_edge"),
        (End({"total": "many"}), "bad_output"),
        (End(None), "bad_output"),
        (End(Item(name="x")), "bad_output"),
    ],
)
async def test_a_return_that_was_not_declared_fails_the_run(value: Any, code: str) -> None:
    if value is End:
        value = lambda: returning_node  # noqa: E731
    story = returning(value, output=Typed)
    assert await story.drive() == "failed" and story.failure.code == code
    assert "node" in story.failure.payload["message"] or code == "bad_output"


returning_node = "another_agents_node"


@each_case(
    "value",
    [
        End(object()),
        End({1, 2}),
        End(float("nan")),
        End("\ud800"),
        End(b"\xff"),
        End(Strict(share=float("nan"))) if False else End({"deep": [float("inf")]}),
    ],
)
async def test_an_output_that_is_no_json_fails_the_run_and_is_not_tried_forever(value: Any) -> None:
    story = returning(value)
    assert await story.drive() == "failed" and story.failure.code == "bad_output"


@each_case("value", [End(), End([1, "x", None]), End({"total": 3}), End(Typed(total=3))])
async def test_plain_outputs_are_kept_as_they_are(value: End) -> None:
    story = returning(value)
    assert await story.drive() == "completed"
    expected = value.output.model_dump() if isinstance(value.output, BaseModel) else value.output
    assert story.output == expected


async def test_an_output_is_validated_into_the_declared_model() -> None:
    story = returning(End({"total": "3"}), output=Typed)
    assert await story.drive() == "completed" and story.output == {"total": 3}


@each_case("left", [{"share": float("nan")}, {"anything": object()}, {"anything": "\ud800"}, {"amount": "many"}])
async def test_state_that_does_not_round_trip_fails_the_run(left: dict[str, Any]) -> None:
    async def first(state: Strict, ctx: Context) -> str:
        for name, value in left.items():
            setattr(state, name, value)
        return "second"

    async def second(state: Strict, ctx: Context) -> End:
        return End("never")

    story = Story(agent_of(first, second, state=Strict, initial=lambda asked: Strict()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pydantic warns in its own way too
        assert await story.drive() == "failed"
    assert story.failure.code == "bad_state" and "'first'" in story.failure.payload["message"]


async def test_the_state_of_a_visit_is_data_and_shares_nothing_with_the_one_before() -> None:
    kept: list[Notes] = []

    async def first(state: Notes, ctx: Context) -> str:
        state.seen.append([1, 2])
        kept.append(state)
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        kept[0].seen.append("changed behind its back")
        return End(state.seen)

    story = Story(agent_of(first, second))
    assert await story.drive() == "completed" and story.output == [[1, 2]]


async def test_a_failure_is_a_nodes_word_and_has_no_traceback() -> None:
    async def node(state: Notes, ctx: Context) -> End:
        raise Failure("The company is dissolved.", code="dissolved")

    story = Story(agent_of(node))
    assert await story.drive() == "failed"
    assert (story.failure.code, story.failure.payload) == (
        "dissolved",
        {"message": "The company is dissolved.", "traceback": ""},
    )


@each_case("raised", [KeyError("oops"), RecursionError("deep"), asyncio.CancelledError(), SystemExit(3)])
async def test_a_bug_in_a_node_fails_the_run_with_its_traceback_and_nobody_else(raised: BaseException) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        raise raised

    story = Story(agent_of(node))
    assert await story.drive() == "failed" and story.failure.code == "node_error"
    assert "test_returns.py" in story.failure.payload["traceback"]
    assert type(raised).__name__ in story.failure.payload["message"]


async def test_a_node_that_wants_to_exit_does_not_take_the_worker_along() -> None:
    async def node(state: Notes, ctx: Context) -> End:
        sys.exit("good bye")

    assert await Story(agent_of(node)).drive() == "failed"


@each_case("text", ["\ud800", "nul \x00 byte", "x" * 100_000, "\U0001f9fe"])
async def test_whatever_a_failure_says_it_is_told(text: str) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        raise Failure(text, code=text[:20])

    story = Story(agent_of(node))
    assert await story.drive() == "failed"
    story.failure.payload["message"].encode()
    assert "\x00" not in story.failure.code


async def test_an_input_that_gives_no_first_state_fails_the_run() -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End()

    def no_state(asked: Asked) -> Notes:
        if asked.amount:
            raise LookupError("no such customer")
        return Notes()

    story = Story(agent_of(node, initial=no_state))
    assert await story.drive() == "failed" and story.failure.code == "bad_input"


async def test_going_to_a_declared_node_by_name_or_by_the_node_itself(tools: Toolbox) -> None:
    async def first(state: Notes, ctx: Context) -> Any:
        return agent.nodes["second"] if state.asked.amount == 2 else "second"

    async def second(state: Notes, ctx: Context) -> End:
        return End("there")

    agent = agent_of(first, second)
    for amount in (1, 2):
        story = Story(agent, {"amount": amount})
        assert await story.drive() == "completed" and story.output == "there"
        assert [event.node for event in story.events(e.VisitEntered)] == ["first", "second"]
