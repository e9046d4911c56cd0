"""An agent version's manifest on its page and over the API, and what has changed under it."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, Field, SecretStr, field_serializer

from durableagents import Agent, Context, End, ReplayClass, ToolCall, prompt_injection_markers, tool
from runs.engine.agents import registry
from runs.queries.manifest import fact, manifest_of
from tests.integration.runs.stage import Stage
from tests.world import Notes


class Password(BaseModel):
    value: SecretStr
    within: list[Password] = []

    @field_serializer("value", when_used="json")
    def _value(self, value: SecretStr) -> str:
        return value.get_secret_value()


class Login(BaseModel):
    user: str
    passwords: dict[str, Password]
    pin: str = Field(json_schema_extra={"writeOnly": True})


class Badge(BaseModel):
    number: int
    spare: SecretStr | None = None

    @field_serializer("spare", when_used="json")
    def _spare(self, value: SecretStr | None) -> str | None:
        return None if value is None else value.get_secret_value()


def guarded() -> Agent:
    @tool(
        replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
        system="<Doors & Co>",
        key_ttl=timedelta(hours=48),
        external_id="number",
    )
    async def admit(args: Login, call: ToolCall) -> Badge:
        return Badge(number=1)

    @tool(replay_class=ReplayClass.PURE, cache=timedelta(minutes=5))
    async def look(args: Notes, call: ToolCall) -> Notes:
        return args

    registry.remove("guarded@1.0.0")
    agent = Agent(
        "guarded",
        "1.0.0",
        input=Login,
        state=Notes,
        output=Badge,
        tools=[admit, look],
        signals=["go"],
        screens=[prompt_injection_markers],
        initial=lambda given: Notes(),
    )

    @agent.node(start=True)
    async def begin(state: Notes, ctx: Context) -> End:
        return End(await ctx.call(look, Notes()))

    return agent


def test_it_is_read_off_what_the_agent_declares() -> None:
    manifest = manifest_of(guarded())
    secret = [fact.name for fact in manifest.secret if fact.kind == "field"]
    assert secret == [
        "input: passwords[].value",
        "input: pin",
        "output: spare",
        "admit input: passwords[].value",
        "admit input: pin",
        "admit output: spare",
    ]
    assert [fact.kind for fact in manifest.secret].count("screen") == 1
    assert fact("result", "admit", "number, spare") in manifest.persisted
    assert fact("signal", "go", "its payload") in manifest.persisted
    assert [fact.name for fact in manifest.recomputed] == ["begin", "look"]
    assert "shared for 5 min" in manifest.recomputed[1].note
    assert [fact.note for fact in manifest.external] == [
        "at <Doors & Co>; idempotent with key; remembers a key for 2 d; its own id is in number",
        "pure",
    ]


def test_every_agent_has_one(stage: Stage) -> None:
    for agent in registry.agents():
        manifest = manifest_of(agent)
        assert {fact.name for fact in manifest.external} == {each.name for each in agent.all_tools()}
        assert {fact.name for fact in manifest.recomputed} >= set(agent.nodes)
        assert {fact.name for fact in manifest.persisted} >= {*agent.state.model_fields, *agent.input.model_fields}
