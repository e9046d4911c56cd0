from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai.messages import ModelResponse, ToolCallPart

from durableagents import Assistant, Context, End, ReplayClass, ToolCall, tool
from durableagents.contrib.replay.checkpoints import replay_checkpoints
from durableagents.contrib.replay.declared_secrets import secrets_of_agent
from durableagents.contrib.replay.exporting import ExportOptions, export
from durableagents.contrib.replay.files import file_text
from durableagents.contrib.replay.redaction import Redaction, Secrets
from ledger.clock import database_now
from runs.engine.agents import Agent
from runs.engine.errors import Rejected
from runs.engine.recordings.recording import Recording
from tests.cases import each_case
from tests.contrib.forks.test_forks import AGAIN, NO, TAKE, asked, fork, say
from tests.contrib.replay.test_export import recording_of
from tests.integration.runs.stage import Stage, fresh
from tests.world import Done, Notes, agent_of

pytestmark = pytest.mark.django_db(transaction=True)
PLAIN, QUOTED, FOREIGN = "tango-7-foxtrot-lima-9", 'ta"ngo-7\\foxtrot-lima-9', "tängo-7-föxtrot-lima-9"
OF_ALL = "ngo-7"  # it occurs in each of them, escaped or not


class Payment(BaseModel):
    note: str = ""
    code: str = Field(default="", json_schema_extra={"writeOnly": True})


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="outside", effect="pays", timeout=5)
async def pay(args: Payment, call: ToolCall) -> Done:
    return Done(ref="paid")


def payer(code: str, before: int) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(pay, Payment(note="n" * before, code=code))
        except Rejected:
            return End("refused")
        return End()

    return agent_of(node, tools=[pay], name="text-payer")


@pytest.mark.parametrize(
    ("code", "before", "answer"),
    [(PLAIN, 5, None), (PLAIN, 5, NO), (PLAIN, 5, TAKE), (PLAIN, 970, AGAIN), (QUOTED, 5, AGAIN), (FOREIGN, 5, AGAIN)],
    ids=["open", "refused", "taken", "cut", "escaped", "foreign"],
)
def test_a_forks_question_leaves_without_what_it_tells_people(
    stage: Stage, tmp_path: Path, code: str, before: int, answer: Any
) -> None:
    agent = payer(code, before)
    run = stage.start(agent)
    assert stage.settle(run) == "completed"
    made = fork(fresh(run), 1)
    assert stage.settle(made) == "parked"
    assert OF_ALL in asked(made).detail["about"], "an operator sees it"
    if answer is not None:
        say(made, answer)
        assert stage.settle(made) == "completed"
    done = export(tmp_path / "kept", ExportOptions(limit=10, since=database_now() - timedelta(days=1)))
    assert done.left_out == [] and len(done.files) == 2
    assert OF_ALL not in "".join(path.read_text() for path in (tmp_path / "kept").iterdir())
    assert len(replay_checkpoints(tmp_path / "kept", [agent])) == 2, "no node goes by its words"


class Vault(BaseModel):
    code: str = Field(default="", json_schema_extra={"writeOnly": True})
    told: list[str] = []


def vault() -> Agent:
    async def only(state: Vault, ctx: Context) -> End:
        await ctx.signal("go")
        return End()

    return agent_of(only, name="text-vault", input=Vault, state=Vault, initial=lambda given: given)


@each_case("code", [PLAIN, QUOTED, FOREIGN])
@each_case("is_ascii", [True, False])
@each_case("times", [0, 1, 2])
def test_it_is_found_in_json_within_a_text(code: str, is_ascii: bool, times: int) -> None:
    text = code
    for _ in range(times):
        text = json.dumps({"it": text}, ensure_ascii=is_ascii)
    agent = vault()
    made = recording_of(agent, {"code": code, "told": [f"It said {text}."]})
    redacted = Redaction((), b"salt", secrets_of_agent(agent)).redact(made)
    assert OF_ALL in file_text(made) and OF_ALL not in file_text(redacted)
    (result,) = redacted.state["told"]
    found = result.removeprefix("It said ").removesuffix(".")
    for _ in range(times):
        found = json.loads(found)["it"]
    assert found == redacted.state["code"], "the same placeholder, escaped as it was"


def replaced(given: str) -> str:
    redaction = Redaction((), b"salt", Secrets(frozenset({"code", "access"}), frozenset({("pins", 0)})))
    value = {"parts": [{"part_kind": "tool-call", "tool_name": "pay", "args": given}]}
    redaction._collect(value)
    return str(redaction._redact(value)["parts"][0]["args"])


@each_case(
    "given",
    [
        '{"code": "tango-7", "amount": 1}',
        ' [{"in": {"code": "tango-7"}}]',
        '{"code": ["tango-7", {"a": "tango-"}]}',
        '{"code": "tango-7", "code": ""}',
        '{"code": "", "code": "tango-7"}',
        r'{"\u0063ode": "tango-7"}',
        '{"pins": {"tango-7": 1}}',
        json.dumps({"args": json.dumps({"code": "tango-7"})}),
        '{"code": "tango-7", "n": NaN}',
        '{"code": "tango-7", "access": 1e999}',
        '{"code": "tango-7", "n": ' + "9" * 5000,
        '{"code": "tango-7',
        '{"a": 1, "code": "tango-7", "not',
        '{"access": {"b": ["tango-7"',
        '{"pins": {"tango-7": ',
        r'{"\u0063ode": "tango-7\u00',
        '{"a": "x\\" , "code" : "tango-7',
        '{"code": "tango-7", "deep": ' + "[" * 100_000,
        '{"deep": ' + '{"a":' * 500 + '{"code": "tango-7"}' + "}" * 501,
    ],
)
def test_what_a_model_writes_as_json_is_read_for_what_is_private(given: str) -> None:
    """Also what can't be parsed, such as an answer cut at its length limit."""
    assert "tango" not in replaced(given)


@each_case(
    "given",
    [
        '{"amount":1,  "x": null}',
        "{not json",
        "[note] see there",
        '{"a": "code", "b": [',
        "",
        "{",
        '{"code": null}',
        '{"n": NaN, "m": 1e999}',
    ],
)
def test_where_nothing_is_private_it_stays_to_the_byte(given: str) -> None:
    assert replaced(given) == given


def test_what_stays_of_json_is_json_still() -> None:
    made = json.loads(replaced('{"code": 1234, "amount": 5, "who": "a\\"b"}'))
    assert made["amount"] == 5 and made["who"] == 'a"b' and made["code"] != 1234 and isinstance(made["code"], int)


def test_arguments_that_no_tool_takes_leave_without_it() -> None:
    """No call is recorded then: they are only in the model's answer, as written."""
    written = ['{"code": "tango-7-foxtrot", "note": 7}']

    def thought(messages: list[Any], info: Any) -> ModelResponse:
        if written:
            return ModelResponse(parts=[ToolCallPart("pay", written.pop())])
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "thought"})])

    mind = Assistant(name="mind", instructions="", output=Done, tools=[pay], offline=thought)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(mind, "pay it")).ref)

    agent = agent_of(node, assistants=[mind], tools=[pay], name="text-thinker")
    made: Recording = recording_of(agent, {"text": "x"})
    redacted = Redaction((), b"salt", secrets_of_agent(agent)).redact(made)
    assert "tango-7" in file_text(made) and "tango-7" not in file_text(redacted)
