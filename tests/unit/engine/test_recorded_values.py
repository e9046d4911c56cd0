"""Recorded values are restored unchanged, or refused by name: at load where a type shows it, else when recorded."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, field_serializer

from durableagents import Agent, Context, End, Renew, ReplayClass, ToolCall, tool
from runs.engine.canonical import plain, unstable
from runs.engine.errors import DefinitionError
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import Asked, Notes, agent_of


class Line(BaseModel):
    amount: int = 0


class Discount(Line):
    percent: int = 10


class Renamed(Line):
    """It adds nothing, so nothing of it can be lost."""


class Order(BaseModel):
    lines: list[Line] = []
    anything: Any = None


class Hidden(BaseModel):
    payee: str = Field("nobody", exclude=True)


class TwoNames(BaseModel):
    payee: str = Field("nobody", validation_alias="to", serialization_alias="payTo")


class Password(BaseModel):
    words: list[SecretStr] = []


class Nested(BaseModel):
    known: dict[str, Hidden] = {}


class Fine(BaseModel):
    """Fields that come back, though they look like those that don't."""

    model_config = ConfigDict(populate_by_name=True)
    one: int = Field(0, alias="first")
    two: int = Field(0, validation_alias=AliasChoices("second", "two"))
    three: int = Field(0, validation_alias="third")
    by_number: dict[int, tuple[Decimal, ...]] = {}
    word: SecretStr = SecretStr("x")

    @field_serializer("word", when_used="json")
    def _word(self, value: SecretStr) -> str:
        return value.get_secret_value()


LOSSY = {
    Hidden: "Hidden.payee is excluded from what is recorded",
    TwoNames: "TwoNames.payee is recorded as 'payTo' and read as 'to'",
    Password: "Password.words is a secret",
    Nested: "Hidden.payee is excluded from what is recorded",
}


@each_case("model", LOSSY)
def test_model_that_would_lose_a_field_is_refused_at_load(model: type[BaseModel]) -> None:
    def given(args: BaseModel, call: ToolCall) -> BaseModel: ...

    for where, declare in {
        "agent lossy@1.0.0, input": lambda: Agent("lossy", "1.0.0", input=model, state=Notes),
        "agent lossy@1.0.0, state": lambda: Agent("lossy", "1.0.0", input=Asked, state=model),
        "agent lossy@1.0.0, output": lambda: Agent("lossy", "1.0.0", input=Asked, state=Notes, output=model),
        "tool 'given', input": lambda: _tool(given, model, Line),
        "tool 'given', output": lambda: _tool(given, Line, model),
    }.items():
        with pytest.raises(DefinitionError) as refused:
            declare()
        assert str(refused.value).startswith(f"{where}: {LOSSY[model]}")


def _tool(function: Callable[..., Any], takes: type[BaseModel], gives: type[BaseModel]) -> None:
    function.__annotations__ = {"args": takes, "call": ToolCall, "return": gives}
    tool(replay_class=ReplayClass.PURE)(function)


def test_values_that_come_back_are_recorded_as_before() -> None:
    assert unstable(Fine) == ""
    fine = Fine(one=1, two=2, three=3, by_number={7: (Decimal("1.10"),)}, word=SecretStr("open"))
    stored = plain(fine)
    assert Fine.model_validate(stored) == fine
    assert stored == {"first": 1, "two": 2, "three": 3, "by_number": {"7": ["1.10"]}, "word": "open"}
    assert plain(Order(lines=[Renamed(amount=3)])) == {"lines": [{"amount": 3}], "anything": None}


# Values that a node may pass but that can't be restored, and the refusal's name for them.
LOST: dict[str, tuple[Callable[[], Any], str]] = {
    "a subclass": (lambda: Order(lines=[Line(), Discount()]), "Order.lines[1] is a Discount .* Line, without percent"),
    "a decimal": (lambda: Order(anything=Decimal("1.1")), "Order.anything is a Decimal .* a str"),
    "a number in a tuple": (lambda: Order(anything=(1, Decimal(2))), r"Order.anything\[1\] is a Decimal .* a str"),
    "a key": (lambda: Order(anything=[{1: "a"}]), r"Order.anything\[0\] has the key 1, a int"),
    "a model": (lambda: Order(anything=Line()), "Order.anything is a Line .* a dict"),
}


@each_case("name", LOST)
async def test_value_that_would_not_come_back_is_refused_wherever_it_is_passed(name: str) -> None:
    make, refusal = LOST[name]
    refusal = refusal.replace("lines[1]", r"lines\[1\]")
    sent: list[Any] = []

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY)
    async def takes(args: Order, call: ToolCall) -> Line:
        sent.append(args)
        return Line()

    @tool(replay_class=ReplayClass.PURE)
    async def gives(args: Line, call: ToolCall) -> Order:
        return make()

    async def child(state: Order, ctx: Context) -> End:
        return End({})

    below = agent_of(child, name="below", input=Order, state=Order, initial=lambda order: order)

    async def argument(state: Order, ctx: Context) -> End:
        return End(await ctx.call(takes, make()))

    async def result(state: Order, ctx: Context) -> End:
        return End(await ctx.call(gives, Line()))

    async def of_a_child(state: Order, ctx: Context) -> End:
        return End(await ctx.child(below, make()))

    async def state_left(state: Order, ctx: Context) -> str:
        state.lines, state.anything = make().lines, make().anything
        return "state_left"

    async def renewed(state: Order, ctx: Context) -> Renew:
        return Renew(make())

    async def output(state: Order, ctx: Context) -> End:
        return End(make())

    for node in (argument, result, of_a_child, state_left, renewed, output):
        more = {"output": Order} if node is output else {}
        agent = agent_of(node, tools=[takes, gives], input=Order, state=Order, initial=lambda order: order, **more)
        story = Story(agent)
        assert await story.drive() == "failed", node.__name__
        message = story.failure.payload["message"]
        with pytest.raises(ValueError, match=refusal):
            raise ValueError(message)
    assert sent == []


async def test_subclass_is_refused_where_its_base_is_declared() -> None:
    @tool(replay_class=ReplayClass.PURE)
    async def takes(args: Line, call: ToolCall) -> Line:
        return args

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.call(takes, Discount()))

    story = Story(agent_of(node, tools=[takes]))
    assert await story.drive() == "failed"
    assert "Discount is a Discount and would come back as a Line, without percent" in story.failure.payload["message"]


@pytest.mark.parametrize("word", ["null", "strings", "constants"])
def test_numbers_that_json_lacks_are_refused_however_a_model_would_write_them(word: Any) -> None:
    class Rate(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan=word)
        value: float | None

    for value in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="it can't be recorded"):
            plain(Rate(value=value))
