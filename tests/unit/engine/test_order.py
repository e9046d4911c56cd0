from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, RootModel, computed_field
from typing_extensions import TypedDict

from durableagents import Agent, Assistant, Context, End, ReplayClass, ToolCall, tool
from runs.engine.canonical import plain, unordered
from runs.engine.errors import DefinitionError
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import Asked, Done, Notes, Toolbox, agent_of


class Deep(BaseModel):
    parts: list[dict[str, set[int] | None]] = []


class Deeper(BaseModel):
    deep: list[Deep]


class Frozen(BaseModel):
    tags: frozenset[str] = frozenset()


class Itself(BaseModel):
    below: dict[str, Itself] = {}
    tags: Set[str] = frozenset()


class Later(BaseModel):
    thing: DefinedLater


class DefinedLater(BaseModel):
    tags: set[str]


class Root(RootModel[set[int]]):
    pass


class Computed(BaseModel):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def tags(self) -> set[int]:
        return {1}


class Typed(TypedDict):
    type: frozenset[int]


@dataclass
class Plain:
    tags: Set[int]


class Named(NamedTuple):
    tags: set[str]


class Holding(BaseModel):
    typed: Typed | None = None
    plain: Plain | None = None
    named: Named | None = None


class Sound(BaseModel):
    type: str = "set"
    ids: list[int] = []
    more: tuple[str, ...] = ()
    by_name: dict[str, Sound] = {}
    anything: Any = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


@each_case(
    ("model", "where"),
    [
        (Deeper, "Deep.parts"),
        (Frozen, "Frozen.tags"),
        (Itself, "Itself.tags"),
        (Later, "DefinedLater.tags"),
        (Root, "Root"),
        (Computed, "Computed.tags"),
        (Holding, "Holding.typed.type"),
        (Sound, None),
        (Open, None),
        (Asked, None),
    ],
)
def test_a_type_without_an_order_is_found_however_deep(model: type[BaseModel], where: str | None) -> None:
    assert unordered(model) == where


def taking(model: Any) -> Any:
    async def function(args: Any, call: ToolCall) -> Done:
        return Done(ref="x")

    function.__annotations__ = {"args": model, "call": ToolCall, "return": Done}
    return function


def giving(model: Any) -> Any:
    async def function(args: Any, call: ToolCall) -> Done:
        return Done(ref="x")

    function.__annotations__ = {"args": Asked, "call": ToolCall, "return": model}
    return function


@each_case(
    "define",
    [
        lambda: tool(replay_class=ReplayClass.PURE)(taking(Deeper)),
        lambda: tool(replay_class=ReplayClass.PURE)(giving(Deeper)),
        lambda: Agent("unordered", "1.0.0", input=Deeper, state=Notes),
        lambda: Agent("unordered", "1.0.0", input=Asked, state=Deeper),
        lambda: Agent("unordered", "1.0.0", input=Asked, state=Notes, output=Deeper),
        lambda: Assistant("mind", "think", Deeper),
    ],
)
def test_no_tool_agent_or_assistant_is_made_of_sets(define: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Deep\.parts contains a set.*use a tuple, or a list"):
        define()


@each_case("wait", ["signal", "ask"])
async def test_a_node_that_waits_for_a_set_stops_for_an_operator_at_once(wait: str) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        if wait == "signal":
            return End(await ctx.signal("tags", Frozen))
        return End(await ctx.ask("operator", title="Which?", schema=Frozen))

    story = Story(agent_of(node))
    assert await story.drive() == "operator"
    assert story.found.reason == "definition" and "Frozen.tags contains a set" in story.found.payload["problem"]


@each_case(
    "value",
    [
        Sound(anything={3, 1}),
        Sound(by_name={"a": Sound(anything=[{"b": frozenset("xy")}])}),
        Open(tags={1}),
        {"a": {1}},
    ],
)  # type: ignore[call-arg]
def test_a_set_where_anything_may_be_is_not_put_on_record(value: Any) -> None:
    with pytest.raises(ValueError, match="can't be recorded"):
        plain(value)


def test_what_has_an_order_is_put_on_record_as_before() -> None:
    assert plain(Sound(ids=[2, 1], more=("b", "a"), anything=[[1, 2]])) == {
        "type": "set",
        "ids": [2, 1],
        "more": ["b", "a"],
        "by_name": {},
        "anything": [[1, 2]],
    }


async def test_a_state_with_a_set_in_it_fails_the_run_by_name(tools: Toolbox) -> None:
    async def first(state: Notes, ctx: Context) -> str:
        state.seen.append({"b", "a"})
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        return End()

    story = Story(agent_of(first, second))
    assert await story.drive() == "failed" and story.failure.code == "bad_state"
    assert "a set has no defined order: use a list" in story.failure.payload["message"]
