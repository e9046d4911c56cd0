"""The manifest of an agent version, on its page and over the API; and what has changed under it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from pydantic import BaseModel, Field, SecretStr, field_serializer

from durableagents import Agent, Context, End, ReplayClass, ToolCall, prompt_injection_markers, tool
from durableagents.identity.auth import issue_key
from runs.engine.agents import registry
from runs.queries.manifest import Fact, manifest_of
from tests.runs.stage import Stage
from tests.world import Notes, Outside, Toolbox, agent_of, ends_with

pytestmark = pytest.mark.django_db


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


@pytest.fixture
def operator(stage: Stage) -> Client:
    user = User.objects.create_user("manifest-reader", password="a long enough one")
    user.groups.set([Group.objects.get_or_create(name="operator")[0]])
    client = Client(headers={"Authorization": f"Bearer {issue_key(user, 'test')}"})
    client.force_login(user)
    return client


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
    assert Fact("result", "admit", "number, spare") in manifest.persisted
    assert Fact("signal", "go", "its payload") in manifest.persisted
    assert [fact.name for fact in manifest.recomputed] == ["begin", "look"]
    assert "shared for 5 min" in manifest.recomputed[1].note
    assert [fact.note for fact in manifest.external] == [
        "at <Doors & Co>; idempotent with key; knows a key for 2 d; its own id is in number",
        "pure",
    ]


def test_every_agent_has_one(stage: Stage) -> None:
    for agent in registry.agents():
        manifest = manifest_of(agent)
        assert {fact.name for fact in manifest.external} == {each.name for each in agent.all_tools()}
        assert {fact.name for fact in manifest.recomputed} >= set(agent.nodes)
        assert {fact.name for fact in manifest.persisted} >= {*agent.state.model_fields, *agent.input.model_fields}


def test_it_is_on_the_page_and_over_the_api(operator: Client) -> None:
    agent = guarded()
    page = operator.get(f"/agents/{agent.graph_id}").content.decode()
    assert "input: passwords[].value" in page and "&lt;Doors &amp; Co&gt;; idempotent with key" in page
    for reference in ("guarded", "guarded@1.0.0"):
        told = operator.get(f"/api/v1/agents/{reference}").json()
        assert told["graph_id"] == "guarded@1.0.0" and told["fingerprint"] == agent.fingerprint()
        assert told["changed"] is None and list(told["manifest"]) == ["persisted", "recomputed", "secret", "external"]
        assert {"kind": "field", "name": "output: spare", "note": told["manifest"]["secret"][2]["note"]} in told[
            "manifest"
        ]["secret"]


@pytest.mark.parametrize("reference", ["nobody", "guarded@9.0.0", "guarded@", "@", "a" * 500, "%00", "guarded@1.0.0@1"])
def test_an_agent_that_is_not_there_is_not_found(operator: Client, reference: str) -> None:
    guarded()
    answer = operator.get(f"/api/v1/agents/{reference}")
    assert answer.status_code == 404 and answer.json()["code"] == "not-found"


def test_what_has_changed_is_told_on_every_page_that_speaks_of_agents(
    stage: Stage, operator: Client, settings: Any
) -> None:
    tools = Toolbox(Outside())
    gate = tools.pay.gate
    assert gate is not None
    agent = agent_of(ends_with(1), tools=[tools.pay], name="refund")
    stage.start(agent)
    agent_of(ends_with(1), tools=[replace(tools.pay, gate=replace(gate, queue="legal"))], name="refund")
    for stage_name, told in (("development", "would be driven"), ("production", "No run of it is started here")):
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"stage": stage_name})
        for path in ("/agents", "/agents/refund@1.0.0", "/fleet"):
            page = operator.get(path, secure=True).content.decode()
            assert "pay: gate queue finance_po → legal; bump to 1.0.1" in page and told in page, path
        changed = operator.get("/api/v1/agents/refund", secure=True).json()["changed"]
        assert changed == {"differences": ["pay: gate queue finance_po → legal"], "proposed": "1.0.1"}
    refused = operator.post(
        "/api/v1/runs", {"agent": "refund", "input": {}}, content_type="application/json", secure=True
    )
    assert refused.status_code == 409 and "gate queue finance_po → legal" in refused.json()["detail"]
