"""A wrong declaration is found when it is made, with what is wrong and what to do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, Field, model_validator

from durableagents import Agent, Assistant, Context, End, Gate, Pending, ReplayClass, Sample, ToolCall, tool
from runs.engine.agents import registry
from runs.engine.errors import DefinitionError, UnknownAgent, UnknownVersion
from tests.cases import each_case
from tests.world import Asked, Done, Item, Notes, Outside, Toolbox, agent_of, only_for_now

PURE = ReplayClass.PURE


async def plain(args: Item, call: ToolCall) -> Done:
    return Done(ref="x")


async def no_output(args: Item, call: ToolCall):  # type: ignore[no-untyped-def]
    return Done(ref="x")


async def one_parameter(args: Item) -> Done:
    return Done(ref="x")


async def no_model(args: dict[str, Any], call: ToolCall) -> Done:
    return Done(ref="x")


async def later(args: Item, call: ToolCall) -> Pending:
    return Pending()


@each_case(
    ("function", "given", "told"),
    [
        (plain, {"replay_class": "pure"}, "replay_class is 'pure'"),
        (plain, {"replay_class": None}, "give one of ReplayClass.PURE"),
        (plain, {}, r"needs replay_class=.*PURE \(.*IDEMPOTENT_WITH_KEY \(.*UNSAFE_ON_REPLAY \("),
        (no_output, {"replay_class": PURE}, "say what it returns"),
        (one_parameter, {"replay_class": PURE}, "must take exactly"),
        (no_model, {"replay_class": PURE}, "must take exactly"),
        (later, {"replay_class": PURE, "answers_later": True, "output": Done}, "can't answer later"),
        (later, {"replay_class": ReplayClass.UNSAFE_ON_REPLAY, "answers_later": True}, "say what it returns"),
    ],
)
def test_a_tool_that_is_declared_wrongly_can_not_be_registered(function: Any, given: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        tool(**given)(function)


@each_case("name", ["Wrong", "wrong-name", "1st", "", "x" * 65, "ü", "final_result"])
def test_a_tools_name_is_lower_snake_case_and_not_the_loops_own(name: str) -> None:
    async def function(args: Item, call: ToolCall) -> Done:
        return Done(ref="x")

    function.__name__ = name
    with pytest.raises(DefinitionError, match="name"):
        tool(replay_class=PURE)(function)


@each_case("name", ["Wrong", "under_score", "1st", "", "x" * 65, "-x", "x y"])
def test_an_agents_name_is_lower_case_with_hyphens(name: str) -> None:
    with pytest.raises(DefinitionError, match="lower-case letters, digits and hyphens"):
        Agent(name, "1.0.0", input=Asked, state=Notes)


@each_case("version", ["1", "1.0", "1.0.0.0", "v1.0.0", "01.0.0", "1.0.0-rc1", "", "1.0.x", "1.0.0\n"])
def test_an_agents_version_is_three_numbers(version: str) -> None:
    with pytest.raises(DefinitionError, match=r"not of the form 1\.0\.0"):
        Agent("versions", version, input=Asked, state=Notes)


async def node(state: Notes, ctx: Context) -> End:
    return End()


def not_async(state: Notes, ctx: Context) -> End:
    return End()


def test_nodes_are_async_named_once_and_one_is_the_start() -> None:
    agent = Agent("nodes", "1.0.0", input=Asked, state=Notes)
    with pytest.raises(DefinitionError, match="no node is marked as start"):
        agent.validate()
    agent.node(start=True)(node)
    with pytest.raises(DefinitionError, match="two nodes named 'node'"):
        agent.node()(node)
    with pytest.raises(DefinitionError, match="must be an `async def`"):
        agent.node()(not_async)

    async def second(state: Notes, ctx: Context) -> End:
        return End()

    with pytest.raises(DefinitionError, match="both 'node' and 'second' are marked as start"):
        agent.node(start=True)(second)
    agent.node(to=("nowhere",))(second)
    with pytest.raises(DefinitionError, match="leads to 'nowhere', which does not exist"):
        agent.validate()


def test_two_tools_of_one_name_can_not_be_told_apart(tools: Toolbox) -> None:
    async def look(args: Item, call: ToolCall) -> Done:
        return Done(ref="another")

    other = tool(replay_class=PURE)(look)
    with pytest.raises(DefinitionError, match="two tools named 'look'"):
        agent_of(node, tools=[tools.look, other])


def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(DefinitionError, match="is not a tool"):
        agent_of(node, tools=[plain])  # type: ignore[list-item]


def test_an_assistants_tools_belong_to_the_agent(tools: Toolbox) -> None:
    assistant = Assistant(name="mind", instructions="", output=Done, tools=[tools.order])
    agent = agent_of(node, assistants=[assistant], tools=[tools.look])
    assert [t.name for t in agent.all_tools()] == ["look", "order"]
    assert agent.tool("order") is tools.order and agent.tool("nothing") is None


# --- the registry ---


def test_versions_live_side_by_side_and_the_newest_is_by_number() -> None:
    for version in ("1.9.0", "1.10.0", "0.99.99"):
        agent_of(node, name="many", version=version)
    assert registry.find("many").version == "1.10.0"
    assert registry.find("many@1.9.0").version == "1.9.0"
    assert [a.version for a in registry.agents() if a.name == "many"] == ["1.10.0", "1.9.0", "0.99.99"]


@each_case("reference", ["nobody", "nobody@1.0.0", "", "@1.0.0", "Many", "many "])
def test_an_unknown_agent_is_named_with_what_is_known(reference: str) -> None:
    agent_of(node, name="many")
    with pytest.raises(UnknownAgent) as error:
        registry.find(reference)
    assert error.value.status == 422 and "many" in error.value.detail


@each_case("version", ["", "2.0.0", "1.0", "1.0.0 ", "latest", "x" * 500])
def test_an_unknown_version_is_named_with_what_is_known(version: str) -> None:
    agent_of(node, name="many")
    with pytest.raises(UnknownVersion) as error:
        registry.find(f"many@{version}")
    assert "1.0.0" in error.value.detail and len(error.value.detail) < 300


def test_forgetting_a_version_leaves_the_others() -> None:
    agent_of(node, name="many", version="1.0.0")
    agent_of(node, name="many", version="2.0.0")
    registry.remove("many@2.0.0")
    assert registry.find("many").version == "1.0.0"
    registry.remove("many@1.0.0")
    registry.remove("many@1.0.0")
    with pytest.raises(UnknownAgent):
        registry.find("many")


# --- the fingerprint ---


class OtherState(Notes):
    more: int = 0


def test_everything_that_a_version_is_made_of_is_in_its_fingerprint(tools: Toolbox) -> None:
    async def other(state: Notes, ctx: Context) -> End:
        return End("something else")

    base = agent_of(node)
    changed = {
        "a node": agent_of(node, other),
        "a tool": agent_of(node, tools=[tools.look]),
        "a class": agent_of(node, tools=[tools.order]),
        "the state": agent_of(node, state=OtherState, initial=lambda asked: OtherState()),
        "a prompt": agent_of(node, assistants=[Assistant(name="a", instructions="x", output=Done)]),
        "another prompt": agent_of(node, assistants=[Assistant(name="a", instructions="y", output=Done)]),
    }
    prints = [base.fingerprint(), *(agent.fingerprint() for agent in changed.values())]
    assert len(set(prints)) == len(prints)
    assert agent_of(node).fingerprint() == base.fingerprint() == base.fingerprint()


def test_a_first_state_comes_from_the_input_itself_where_nothing_else_is_said() -> None:
    class Same(BaseModel):
        text: str

    agent = Agent("same", "1.0.0", input=Asked, state=Same)
    assert agent.begin(Asked(text="hello")) == Same(text="hello")


# --- faults found before a run can meet them ---


def test_a_second_agent_of_one_version_is_refused_and_the_first_one_stays() -> None:
    first = Agent("twice", "1.0.0", input=Asked, state=Notes)
    with pytest.raises(DefinitionError, match=r"two agents twice@1\.0\.0: give one of them another name or version"):
        Agent("twice", "1.0.0", input=Asked, state=Notes)
    assert registry.find("twice@1.0.0") is first


@each_case(
    ("define", "told"),
    [
        (
            lambda: Agent("wrong", 1, input=Asked, state=Notes),
            'version 1 is not of the form 1.0.0: give a text, such as "1.0.0"',
        ),  # type: ignore[arg-type]
        (lambda: Agent(1, "1.0.0", input=Asked, state=Notes), "agent name 1 is invalid"),  # type: ignore[arg-type]
        (lambda: Agent("wrong", "1.0.0", input=dict, state=Notes), "input: <class 'dict'> is not a Pydantic model"),  # type: ignore[arg-type]
        (
            lambda: Agent("wrong", "1.0.0", input=Asked, state=Notes, output=str),
            "output: <class 'str'> is not a Pydantic model",
        ),  # type: ignore[arg-type]
        (
            lambda: Assistant("mind", "think", str),
            "assistant 'mind', output: <class 'str'> is not a Pydantic model: declare one",
        ),  # type: ignore[arg-type]
        (lambda: Assistant("mind", "think", Done, tools=[plain]), "is not a tool: register it"),  # type: ignore[list-item]
        (lambda: Assistant("mind", "think", Done, max_turns=0), "max_turns is 0"),
        (lambda: Assistant("mind", "think", Done, timeout=0), "timeout is 0"),
        (lambda: tool(replay_class=PURE, timeout=0)(plain), "timeout is 0"),
        (lambda: Gate("", "always"), "Gate(queue=''): give a non-empty text"),
        (lambda: Gate("legal", "always", when=plain), "give a plain function"),
        (lambda: Gate("legal", "always", when=True), "give a plain function"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_declaration_names_what_is_wrong_and_the_fix(define: Any, told: str) -> None:
    with pytest.raises(DefinitionError) as error:
        define()
    assert told in error.value.detail


async def swapped(ctx: Context, state: Notes) -> End:
    return End()


async def swapped_names(ctx, state):  # type: ignore[no-untyped-def]
    return End()


async def three_parameters(state: Notes, ctx: Context, more: int) -> End:
    return End()


@tool(replay_class=PURE)
async def look_up(args: Item, call: ToolCall) -> Done:
    return Done(ref="x")


class Tools:
    found = look_up


async def calls(state: Notes, ctx: Context) -> End:
    return End(await ctx.gather(ctx.call(Tools.found, Item(name="a"))))


async def help_out(name: str, ctx: Context) -> Any:
    return await ctx.call(look_up, {"name": name})


async def help_some(ctx: Context, name: str) -> Any:
    if not name:
        return None
    return await ctx.call(look_up, {"name": name})


async def asks_for_help(state: Notes, ctx: Context) -> End:
    return End(await help_out("a", ctx=ctx))


async def may_not_call(state: Notes, ctx: Context) -> End:
    """The tool depends on the run."""
    look_up = state.seen[0]
    await help_some(ctx, "")
    return End(await ctx.call(look_up, Item(name="a")))


class Titled(BaseModel):
    text: str
    title: str


class Renamed(BaseModel):
    title: str = Field(validation_alias=AliasChoices("title", AliasPath("text", 0)))


class Numbered(BaseModel):
    text: int


class Filled(Titled):
    @model_validator(mode="before")
    @classmethod
    def fill(cls, data: dict[str, Any]) -> dict[str, Any]:
        return {"title": data["text"], **data}


def whole(*functions: Any, **more: Any) -> Agent:
    agent = Agent("whole", "1.0.0", **{"input": Asked, "state": Notes} | more)
    for function in functions or (node,):
        agent.node(start=True)(function)
    agent.validate()
    return agent


def test_validate_refuses_what_a_run_could_not_do() -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: whole(swapped), "node 'swapped': its parameters are swapped: write (state: Notes, ctx: Context)"),
        (lambda: whole(swapped_names), "node 'swapped_names': its parameters are swapped"),
        (lambda: whole(three_parameters), "node 'three_parameters': it takes ("),
        (lambda: whole(calls), "calls the tool 'look_up', which the agent does not declare: name it in tools=[…]"),
        (lambda: whole(calls), f"node 'calls': {__file__}, line {calls.__code__.co_firstlineno + 1}, calls the tool"),
        (lambda: whole(asks_for_help), f"{__file__}, line {help_out.__code__.co_firstlineno + 1}, calls the tool"),
        (
            lambda: whole(state=Titled),
            "state=Titled can't be built from input=Asked, which lacks the required field 'title'",
        ),
        (lambda: whole(samples=[Sample("one", {"amount": "x"})]), "sample 'one': it doesn't fit input=Asked: amount: "),
        (lambda: whole(state=Numbered, samples=[Sample("one", {})]), "sample 'one': it doesn't fit its state: text: "),
    ]
    for define, problem in wrong:
        with only_for_now(), pytest.raises(DefinitionError) as error:
            define()
        assert error.value.detail.startswith("whole@1.0.0: ") and problem in error.value.detail, error.value.detail


def test_validate_accepts_what_only_a_run_can_tell() -> None:
    sound: list[Any] = [
        lambda: whole(calls, tools=[look_up]),
        lambda: whole(calls, assistants=[Assistant("mind", "think", Done, tools=[look_up])]),
        lambda: whole(may_not_call),
        lambda: whole(state=Titled, initial=lambda asked: Titled(text="a", title="b")),
        lambda: whole(state=Filled, samples=[Sample("one", {})]),
        lambda: whole(input=Titled, state=Renamed, samples=[Sample("one", {"text": "", "title": ""})]),
    ]
    for define in sound:
        with only_for_now():
            define()


def test_one_text_is_no_list_of_edges() -> None:
    agent = Agent("edges", "1.0.0", input=Asked, state=Notes)
    with pytest.raises(DefinitionError, match=r"give a list, to=\['node'\]"):
        agent.node(start=True, to="node")(node)


def test_a_tools_function_is_out_of_reach(tools: Toolbox, outside: Outside) -> None:
    for attempt in (
        lambda: tools.pay.function,
        lambda: tools.pay(Item(name="a"), None),
        lambda: tools.pay.opened(object()),
    ):
        with pytest.raises(
            TypeError,
            match=r"only be called through ctx\.call or ctx\.think: a direct call is neither recorded nor gated",
        ):
            attempt()
    assert outside.requests == []


def test_the_timeout_of_a_tool_may_be_a_timedelta() -> None:
    assert tool(replay_class=PURE, timeout=timedelta(minutes=2))(plain).timeout == 120
