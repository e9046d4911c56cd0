"""Sources, references and scrubbing, without a database."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.test import TestModel

from durableagents import Assistant, Context, End, ReplayClass, Secret, ToolCall, env, secret_sources, tool
from durableagents.contrib.pydantic_ai import durable, this_call
from durableagents.contrib.secrets import logs
from durableagents.contrib.secrets import store as stores
from durableagents.contrib.secrets.scrubber import ProcessScrubber
from durableagents.contrib.secrets.store import Store
from durableagents.secret_sources import read_source
from durableagents.testing import Harness
from ledger import scrubbing
from runs.engine.errors import DefinitionError, MisusedContext, describe_error, traceback_of
from runs.engine.secrets import SecretUnavailable, takes_secrets
from tests.world import Notes, agent_of

VALUE = 'kanari-"7\\7 äß/+%'
KEY = "-----BEGIN KEY-----\nQUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=\nMTIzNDU2Nzg5MDEyMzQ1Njc4OTA=\n-----END KEY-----"


def store_of(*texts: str) -> Store:
    return Store(lambda: [read_source(text) for text in texts])


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return f"command:{path}"


def test_values_are_replaced_however_a_text_writes_them() -> None:
    scrubber = ProcessScrubber()
    scrubber.learn("bank", VALUE)
    scrubber.learn("key", KEY)
    data = VALUE.encode()
    written = [
        VALUE,
        repr(VALUE),
        json.dumps({"a": VALUE}),
        json.dumps(json.dumps({"a": VALUE}, ensure_ascii=False)),
        quote(VALUE),
        quote(VALUE, safe=""),
        data.hex(),
        *(base64.b64encode(before + data + b":after").decode() for before in (b"", b"u", b"us", b"usr")),
        *(base64.urlsafe_b64encode(before + data).decode() for before in (b"", b"u", b"us")),
    ]
    for text in written:
        clean = scrubber.text(f"before {text} after")
        assert "secret://bank" in clean and not {"kanari", "äß", "6b616e", quote("äß")} & {clean}, text
        assert "kanari" not in clean and "a2FuYXJp" not in clean and "6b616e617269" not in clean, (text, clean)
    assert scrubber.text(KEY) == "secret://key"
    for line in KEY.splitlines()[1:3]:
        assert scrubber.text(f"line {line}") == "line secret://key"
    assert scrubber.text("nothing secret in here") == "nothing secret in here"


def test_errors_lose_values_that_were_cut() -> None:
    class Strict(BaseModel):
        token: int

    scrubber = ProcessScrubber()
    value = "".join(f"{n:03}-" for n in range(60))
    scrubber.learn("bank", value)
    scrubbing.use(scrubber)
    with pytest.raises(ValidationError) as caught:
        Strict.model_validate({"token": value})
    assert "000-001-" in str(caught.value) and "58-059-" in str(caught.value)
    for text in (
        describe_error(caught.value),
        traceback_of(caught.value),
        describe_error(ValueError("x" * 470 + value)),
    ):
        assert "secret://bank" in text and "000-001-" not in text and "58-059-" not in text
    assert scrubbing.scrubbed({"a": [value, 1], f"<{value}>": None}) == {
        "a": ["secret://bank", 1],
        "<secret://bank>": None,
    }


def test_log_lines_lose_values(caplog: pytest.LogCaptureFixture) -> None:
    before = logging.getLogRecordFactory()
    logs.install()
    try:
        log = logging.getLogger("an.integrator")
        log.warning("%s", VALUE)
        assert VALUE in caplog.text, "no secret was read yet"
        caplog.clear()
        scrubber = ProcessScrubber()
        scrubber.learn("bank", VALUE)
        scrubbing.use(scrubber)
        log.warning("token %s of %s", VALUE, "somebody")
        log.warning("%d of it", VALUE)
        try:
            raise ValueError(VALUE)
        except ValueError:
            log.exception("it failed")
        assert VALUE not in caplog.text and caplog.text.count("secret://bank") == 3
        assert "token secret://bank of somebody" in caplog.text and "Traceback" in caplog.text
    finally:
        logging.setLogRecordFactory(before)


def test_sources_are_asked_in_order_and_read_again_for_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    command = script(tmp_path / "get", f'echo called >> {tmp_path}/log; echo "from-command-$1"')
    store = store_of("env", f"file:{folder}", command)

    def value() -> str:
        return asyncio.run(store.values(["bank-api.token"]))["bank-api.token"]

    assert value() == value() == "from-command-bank-api.token"
    assert (tmp_path / "log").read_text() == "called\n", "what it printed is kept for a short time"
    now = time.monotonic()
    monkeypatch.setattr(stores.time, "monotonic", lambda: now + stores.CACHE_SECONDS + 1)
    assert value() and (tmp_path / "log").read_text() == "called\n" * 2 and stores.CACHE_SECONDS <= 60
    (folder / "bank-api.token").write_text("from-file-1\n")
    assert value() == "from-file-1"
    (folder / "bank-api.token").write_text("from-file-2\r\n")
    assert value() == "from-file-2"
    monkeypatch.setenv("AGENT_SECRET_BANK_API_TOKEN", "from-environment")
    assert value() == "from-environment"
    assert scrubbing.scrubbed("from-file-1 from-file-2") == "secret://bank-api.token secret://bank-api.token"


def test_a_secret_that_cannot_be_had_is_named_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_sources, "COMMAND_SECONDS", 0.3)
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name, data in {"short": b"hush5", "empty": b"\n", "bytes": b"\xff" * 9, "huge": b"h" * 65_537}.items():
        (folder / name).write_bytes(data)
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    there = f"file:{folder}"
    cases = {
        ("nowhere", "env"): "secret://nowhere was not found in env",
        ("nowhere", f"{there} env"): f"secret://nowhere was not found in {there}, env",
        ("short", there): f"secret://short: {there} returns fewer than 6 characters",
        ("empty", there): f"secret://empty: {there} returns an empty value",
        ("bytes", there): "does not return UTF-8 text",
        ("huge", there): "is too large",
        ("pipe", there): "is not a file",
        ("folder", there): "is not a file",
        ("any", f"file:{tmp_path}/gone"): "there is no such folder",
        ("any", f"file:{folder}/short"): "Not a directory",
        ("any", "command:/nowhere/get"): "command:/nowhere/get can't be run: No such file",
        ("hangs", script(tmp_path / "hangs", "sleep 60 & sleep 60")): "hangs gave no answer within 0.3 s",
        ("fails", script(tmp_path / "fails", "echo $1-value >&2; exit 3")): "fails ended with 3",
        ("silent", script(tmp_path / "silent", "exit 0")): "silent returns an empty value",
        ("endless", script(tmp_path / "endless", "cat /dev/zero")): "endless printed more than",
    }
    wrong = []
    for (name, texts), problem in cases.items():
        began = time.monotonic()
        try:
            asyncio.run(store_of(*texts.split()).values([name]))
            wrong.append((name, "was had"))
        except SecretUnavailable as error:
            if problem not in error.message or "value" in error.message.replace("an empty value", ""):
                wrong.append((name, error.message))
        if time.monotonic() - began > 2:
            wrong.append((name, "took long"))
    assert wrong == []


def test_a_hanging_command_is_not_run_by_every_call_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_sources, "COMMAND_SECONDS", 0.3)
    store = store_of(script(tmp_path / "get", f"echo $$ >> {tmp_path}/log; sleep 61 & sleep 61"))

    async def all_fail() -> None:
        answers = await asyncio.gather(*(store.values(["bank"]) for _ in range(20)), return_exceptions=True)
        assert {type(each) for each in answers} == {SecretUnavailable}

    began = time.monotonic()
    asyncio.run(all_fail())
    (group,) = (tmp_path / "log").read_text().split()
    assert time.monotonic() - began < 2
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            os.killpg(int(group), 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError("its children live on")


def test_wrong_sources_are_refused_when_the_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("vault", "env:HOME", "file:secrets", "file:", "command:get", "command:", "hunter2-is-a-secret"):
        monkeypatch.setenv("DURABLEAGENTS_SECRETS", f"env,{text}")
        with pytest.raises(env.EnvironmentProblem) as refused:
            env.load()
        answer = str(refused.value)
        assert answer.startswith("DURABLEAGENTS_SECRETS") and "hunter2" not in answer and "\n" not in answer, answer
    monkeypatch.setenv("DURABLEAGENTS_SECRETS", "env, file:/run/secrets,command:/usr/bin/get --from bank")
    assert [each.label for each in env.load().secret_sources] == ["env", "file:/run/secrets", "command:/usr/bin/get"]


class Transfer(BaseModel):
    amount: int = 1
    tokens: list[Secret] = []


class Done(BaseModel):
    ref: str = ""


def test_a_reference_is_a_text_and_never_a_value() -> None:
    token = Secret("bank-api-token")
    assert token == "secret://bank-api-token" == Secret(token) and token.name == "bank-api-token"
    made = Transfer(tokens=[token])
    assert made.model_dump_json() == '{"amount":1,"tokens":["secret://bank-api-token"]}'
    assert Transfer.model_validate_json(made.model_dump_json()) == made and type(made.tokens[0]) is Secret
    for name in ("", "../x", "A", "a/b", "secret://", "secret://secret://a", ".a", "a" * 65, "a\n", "é"):
        with pytest.raises(ValueError, match="not the name of a secret"):
            Secret(name)
    with pytest.raises(ValidationError, match="given by reference"):
        TypeAdapter(Secret).validate_python("bank-api-token")
    assert takes_secrets(Transfer) and not takes_secrets(Done)


def test_a_tool_gets_what_it_declares_only() -> None:
    call = ToolCall("r", "t", "pay", "0.1/1", 0, None, None, 5.0, secrets={"bank": "the value"})
    assert call.secret("bank") == call.secret(Secret("bank")) == "the value" and "the value" not in repr(call)
    with pytest.raises(MisusedContext, match=r"'pay' asks for secret://other.*add secrets=\['other'\]"):
        call.secret("other")
    for wrong in ("bank", ["Bank"], [7], None):

        async def look(args: Transfer, call: ToolCall) -> Done:
            return Done()

        with pytest.raises(DefinitionError, match="secrets="):
            tool(replay_class=ReplayClass.PURE, secrets=wrong)(look)  # type: ignore[arg-type]


def test_a_model_cannot_choose_a_secret() -> None:
    @tool(replay_class=ReplayClass.PURE)
    async def look(args: Transfer, call: ToolCall) -> Done:
        return Done()

    with pytest.raises(DefinitionError, match="the model could choose any secret"):
        Assistant(name="clerk", instructions="", output=Done, tools=[look], models=["openai:gpt"])


def test_a_story_has_stand_ins() -> None:
    @tool(replay_class=ReplayClass.PURE, secrets=["bank"])
    async def look(args: Transfer, call: ToolCall) -> Done:
        return Done(ref=f"{call.secret('bank')} {[call.secret(each) for each in args.tokens]}")

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(look, Transfer(tokens=[Secret("other")]))).ref)

    story = Harness(agent_of(node, tools=[look]), {})
    assert story.output == "value-of-bank ['value-of-other']"


def test_tools_of_a_pydantic_ai_agent_declare_theirs() -> None:
    agent = PydanticAgent(TestModel(), name="clerk")

    @agent.tool_plain
    def pay(amount: int) -> str:
        return this_call().secret("bank")

    made = durable(agent, tools={"pay": ReplayClass.PURE}, secrets={"pay": ["bank"]})
    assert [each.secrets for each in made.tools] == [("bank",)]
    with pytest.raises(DefinitionError, match="secrets names 'other', which is not one of its tools"):
        durable(agent, tools={"pay": ReplayClass.PURE}, secrets={"other": ["bank"]})
