"""Errors in agents, model or key are one line and exit code 2, before anything runs."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from durableagents import keys
from durableagents.checks import check_definitions
from durableagents.models import MasterKey
from tests.conftest import CHECKOUT
from tests.system.infra.installation import assert_refused
from tests.world import only_for_now

Manage = Callable[..., subprocess.CompletedProcess[str]]

HEAD = """
from pydantic import BaseModel
from durableagents import Agent, Assistant, Context, End, Gate, ReplayClass, ToolCall, tool
class Thing(BaseModel):
    name: str = ""
"""
NODE = """
agent = Agent("mine", "1.0.0", input=Thing, state=Thing, tools=list(globals().get("tools", ())))
@agent.node(start=True)
async def go(state: Thing, ctx: Context) -> End:
    BODY
    return End()
"""
TOOL = """
@tool(replay_class=ReplayClass.PURE, gate=Gate("cfo", "always"))
async def look(args: Thing, call: ToolCall) -> Thing:
    return args
tools = [look]
"""
WRONG = {
    "no such name": (
        "import nonsense_that_is_not_there\n",
        "agents_under_test.py, line 1: ModuleNotFoundError: No module named 'nonsense_that_is_not_there'",
    ),
    "syntax": ("x = 1\ndef broken(:\n", "agents_under_test.py, line 2: invalid syntax"),
    "a file that is no text": ("x = 1\n\x00\n", "agents_under_test.py: source code"),
    "it raises": (
        "x = 1\nraise RuntimeError('first\\nsecond')\n",
        "agents_under_test.py, line 2: RuntimeError: first second",
    ),
    "it exits": ("import sys\nsys.exit(0)\n", "agents_under_test.py, line 2: SystemExit: 0"),
    "no agent": ("x = 1\n", "defines no agent"),
    "an answer that is no model": (
        HEAD + "Assistant('mind', 'think', str)\n",
        "agents_under_test.py, line 6: assistant 'mind', output: <class 'str'> is not a Pydantic model",
    ),
    "a version that is no text": (
        HEAD + "Agent('mine', 1, input=Thing, state=Thing)\n",
        "agents_under_test.py, line 6: agent 'mine': version 1 is not of the form 1.0.0",
    ),
    "twice": (HEAD + NODE.replace("BODY", "pass") + NODE.replace("BODY", "pass"), "there are two agents mine@1.0.0"),
    "a set": (
        HEAD + "class Bag(BaseModel):\n    tags: set[str]\nAgent('mine', '1.0.0', input=Bag, state=Bag)\n",
        "Bag.tags contains a set",
    ),
    "a gate that nobody decides": (HEAD + TOOL + NODE.replace("BODY", "pass"), "the gate of tool 'look' asks 'cfo'"),
    "a queue that nobody decides": (
        HEAD + NODE.replace("BODY", 'await ctx.approve("cfo", title="?")'),
        "ctx.approve in node 'go' asks 'cfo'",
    ),
    "a role that nobody has": (
        HEAD + NODE.replace("BODY", 'await ctx.ask("cfo", title="?", schema=Thing)'),
        "ctx.ask in node 'go' asks 'cfo'",
    ),
    "no start": (
        HEAD + "agent = Agent('mine', '1.0.0', input=Thing, state=Thing)\n",
        "no node is marked as start: mark one with start=True",
    ),
}


@pytest.fixture
def with_agents(manage: Manage, tmp_path: Path) -> Manage:
    def run(source: str, *command: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "agents_under_test.py").write_text(source)
        return manage(*command, env={"PYTHONPATH": str(tmp_path), "DURABLEAGENTS_AGENTS": "agents_under_test"})

    return run


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_an_agents_module_is_one_line(
    db: None, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """Checked at the load of agents; the tests below start processes."""
    source, found = WRONG[wrong]
    (tmp_path / "agents_under_test.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "agents_under_test", None)  # removed again afterwards
    del sys.modules["agents_under_test"]
    settings.DURABLEAGENTS_AGENTS = ["agents_under_test"]
    with only_for_now(), pytest.raises(ImproperlyConfigured) as refused:
        load_and_check()
    text = str(refused.value)
    assert found in text and len(text.strip().splitlines()) == 1, text


def load_and_check() -> None:
    apps.get_app_config("runs").ready()
    check_definitions()


@pytest.mark.parametrize("wrong", ["it raises", "it exits"])
def test_a_module_that_breaks_ends_the_check(with_agents: Manage, wrong: str) -> None:
    source, found = WRONG[wrong]
    assert_refused(with_agents(source, "check"), found)


@pytest.mark.parametrize("command", ["worker", "up", "web"])
def test_nothing_starts_with_a_wrong_agent(with_agents: Manage, command: str) -> None:
    assert_refused(with_agents(*[WRONG["no start"][0], command]), WRONG["no start"][1])


def test_while_the_database_is_away_a_queue_that_the_settings_lack_is_warned_of(with_agents: Manage) -> None:
    """An administrator may have added it: serving processes check again with the database."""
    done = with_agents(WRONG["a gate that nobody decides"][0], "check")
    assert done.returncode == 0 and "the gate of tool 'look' asks 'cfo'" in done.stderr, done.stderr
    assert "use one of customer_refunds, finance_po, legal, or add cfo=ROLE to DURABLEAGENTS_QUEUES" in done.stderr


def test_a_sound_module_passes_below_the_one_that_is_named_with_a_queue_of_ones_own(
    manage: Manage, tmp_path: Path
) -> None:
    package = tmp_path / "agents_package"
    package.mkdir()
    (package / "__init__.py").write_text("from agents_package import deep\n")
    asks = NODE.replace("BODY", 'await ctx.ask("operator", title="?", schema=Thing)')
    (package / "deep.py").write_text(HEAD + TOOL + asks)
    env = {"PYTHONPATH": str(tmp_path), "DURABLEAGENTS_AGENTS": "agents_package.deep,agents_package"}
    done = manage("check", env=env | {"DURABLEAGENTS_QUEUES": "cfo=approver_cfo"})
    assert done.returncode == 0 and "cfo" not in done.stderr, done.stderr


WHO = (
    "from django.conf import settings; from ledger.web.roles import ROLES;"
    "print(*settings.DURABLEAGENTS_QUEUES, *ROLES, sep='|')"
)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "finance_po|legal|customer_refunds|integrator|operator|approver_finance|approver_legal|auditor"),
        (
            {"DURABLEAGENTS_ENV": "production"},
            "finance_po|legal|customer_refunds|integrator|operator|approver_finance|approver_legal|auditor",
        ),
        (
            {"DURABLEAGENTS_QUEUES": "legal=lawyer,cfo=approver_cfo"},
            "finance_po|legal|customer_refunds|cfo|integrator|operator|approver_finance|lawyer|approver_cfo|auditor",
        ),
        (
            {"DURABLEAGENTS_QUEUES": "cfo=approver_cfo,tax=approver_cfo", "DURABLEAGENTS_ENV": "production"},
            "cfo|tax|integrator|operator|approver_cfo|auditor",
        ),
    ],
    ids=["none", "production", "besides the demo's", "instead of the demo's"],
)
def test_the_first_queues_and_who_decides_them_are_the_installations_to_name(
    manage: Manage, tmp_path: Path, given: dict[str, str], told: str
) -> None:
    done = manage("shell", "-v0", "-c", WHO, env=given)
    assert done.stdout.strip() == told, done.stderr


def test_budgets_are_raised_at_a_queue_that_there_is(manage: Manage) -> None:
    queues = {"DURABLEAGENTS_QUEUES": "cfo=approver_cfo"}
    assert manage("check", env=queues | {"DURABLEAGENTS_BUDGET_QUEUE": "cfo"}).returncode == 0
    wrong = manage("check", env=queues | {"DURABLEAGENTS_BUDGET_QUEUE": "nope"})
    assert (
        wrong.returncode == 0  # the unreachable database may know it
        and "DURABLEAGENTS_BUDGET_QUEUE='nope': no such queue exists in the settings" in wrong.stderr
    )


@pytest.mark.parametrize(
    ("command", "model", "told"),
    [
        ("check", "foo", "Unknown model: foo"),
        ("worker", "openai:gpt-5", "Set the `OPENAI_API_KEY` environment variable"),
        ("up", "mistral:large", "install the `mistral` package"),
    ],
)
def test_a_model_that_cannot_be_asked_is_refused_at_the_start(
    manage: Manage, command: str, model: str, told: str
) -> None:
    done = manage(command, env={"DURABLEAGENTS_MODEL": model})
    assert_refused(done, told)
    assert f"DURABLEAGENTS_MODEL={model!r}" in done.stderr


def test_a_model_with_its_key_passes(manage: Manage) -> None:
    done = manage("check", env={"DURABLEAGENTS_MODEL": "openai:gpt-5", "OPENAI_API_KEY": "sk-none"})
    assert done.returncode == 0, done.stderr


# --- extras ---


def test_a_package_of_the_extras_that_is_missing_is_named_at_the_start(manage: Manage, tmp_path: Path) -> None:
    """It is named with the setting that needs it, and the command that installs it."""
    absent = ("anthropic", "boto3", "botocore", "openai", "opentelemetry.sdk", "storages")
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({absent}))\n")
    s3 = "from durableagents.settings import *\nSTORAGES[{!r}] = {{'BACKEND': 'storages.backends.s3.S3Storage'}}\n"
    (tmp_path / "large.py").write_text(s3.format("large_values"))
    (tmp_path / "archived.py").write_text(s3.format("archive"))
    (tmp_path / "optioned.py").write_text("from botocore.config import Config\n")
    mind = "Assistant('mind', 'think', Thing, models=['openai-chat:gpt-5'])"
    body = f"await ctx.think({mind}, '?')"
    source = HEAD + NODE.replace("tools=", f"assistants=[{mind}], tools=").replace("BODY", body)
    (tmp_path / "agents_under_test.py").write_text(source)
    for setting, value, found in (
        ("DURABLEAGENTS_MODEL", "anthropic:claude", "DURABLEAGENTS_MODEL='anthropic:claude': the package anthropic"),
        ("DURABLEAGENTS_AGENTS", "agents_under_test", "mine@1.0.0: `models` of assistant 'mind': the package openai"),
        ("DURABLEAGENTS_OTLP_ENDPOINT", "http://127.0.0.1:4", "ENDPOINT is set: the package opentelemetry.sdk"),
        ("DJANGO_SETTINGS_MODULE", "large", "STORAGES['large_values']: the package boto3"),
        ("DJANGO_SETTINGS_MODULE", "archived", "STORAGES['archive']: the package boto3"),
        ("DJANGO_SETTINGS_MODULE", "optioned", "optioned: the package botocore"),
    ):
        done = manage("check", env={"PYTHONPATH": str(tmp_path), setting: value})
        assert_refused(done, f"{found} is not installed: run `pip install ", "-r requirements-extras.lock`")


# --- the master key ---


def manage_there(env: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    items = [sys.executable, str(CHECKOUT / "manage.py"), *command]
    return subprocess.run(items, env=dict(env), cwd=CHECKOUT, capture_output=True, text=True, timeout=60)


def test_a_key_that_is_not_this_databases_is_refused(process_env: dict[str, str], tmp_path: Path) -> None:
    key = tmp_path / "data" / "master.key"
    assert manage_there(process_env, "check").returncode == 0
    assert MasterKey.objects.count() == 1
    right = key.read_bytes()
    for wrong, found in (
        (b"x" * 43, "is not the one that this database was used with"),
        (b"garbage\n", "contains no master key"),
        (None, "is not the one that this database was used with"),
    ):
        key.unlink()
        if wrong is not None:
            key.write_bytes(wrong)
        assert_refused(manage_there(process_env, "check"), found)
        assert key.exists(), "lost, it was made again: and doesn't fit"
    key.write_bytes(right)
    assert manage_there(process_env, "check").returncode == 0, "the second start with it, too"


def test_a_second_host_needs_a_copy_of_the_key(process_env: dict[str, str], tmp_path: Path) -> None:
    assert manage_there(process_env, "check").returncode == 0
    for command in ("worker", "web"):
        other = {**process_env, "DURABLEAGENTS_DATA": str(tmp_path / f"second-host-{command}")}
        assert_refused(manage_there(other, command), "copy it from a host that has it")
    assert MasterKey.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_older_database_adopts_the_key_that_its_records_were_made_with(tmp_path: Path, settings: Any) -> None:
    from runs.journal.digests import hasher_of

    right, wrong = secrets.token_urlsafe(32).encode(), secrets.token_urlsafe(32).encode()
    record_a_call(hasher_of(right)({"tool": "pay", "arguments": {"amount": 7}}))
    settings.DURABLEAGENTS_MASTER_KEY_FILE = key = tmp_path / "master.key"
    key.write_bytes(wrong)
    assert "is not the one that this database was used with" in str(keys.refusal())
    assert not MasterKey.objects.exists()
    key.write_bytes(right + b"\n")
    assert keys.refusal() is None and MasterKey.objects.count() == 1
    key.write_bytes(wrong)
    assert "is not the one that this database was used with" in str(keys.refusal())


def record_a_call(requested_hash: str) -> None:
    from ledger import events as e
    from ledger.append import append
    from runs.services import lifecycle
    from tests.world import SHOP, agent_of, ends_with

    with only_for_now():
        run = lifecycle.start(agent_of(ends_with(1)).graph_id, {}, by=SHOP)
    invoked = e.ToolInvoked(
        slot="0.1/1",
        attempt=0,
        payload={"arguments": {"amount": 7}, "key": None},
        tool="pay",
        replay_class="unsafe_on_replay",
        requested_hash=requested_hash,
        executed_hash=requested_hash,
        grant=None,
    )
    append(run.id, invoked, by=SHOP)


def test_the_value_of_the_key_can_be_stored_once_and_never_changed(
    process_env: dict[str, str], postgres: Mapping[str, str]
) -> None:
    import psycopg

    with psycopg.connect(process_env["DATABASE_URL"], autocommit=True) as runtime:
        runtime.execute("INSERT INTO durableagents_masterkey VALUES (1, 'salt', 'proof', clock_timestamp())")
        for forbidden in (
            "UPDATE durableagents_masterkey SET proof = 'other'",
            "DELETE FROM durableagents_masterkey",
            "TRUNCATE durableagents_masterkey",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                runtime.execute(forbidden)
        with pytest.raises(psycopg.errors.UniqueViolation):
            runtime.execute("INSERT INTO durableagents_masterkey VALUES (1, 'salt', 'proof', clock_timestamp())")
        with pytest.raises(psycopg.errors.CheckViolation):
            runtime.execute("INSERT INTO durableagents_masterkey VALUES (2, 'salt', 'proof', clock_timestamp())")


@pytest.mark.django_db(transaction=True)
def test_many_first_starts_at_once_agree(tmp_path: Path, settings: Any) -> None:
    from tests.integration.runs.stage import at_once

    paths = [tmp_path / name for name in ("one.key", "two.key")]
    for path in paths:
        path.write_text(secrets.token_urlsafe(32))
    settings.DURABLEAGENTS_MASTER_KEY_FILE = paths[0]
    assert at_once(*(keys.refusal for _ in range(8))) == [None] * 8
    settings.DURABLEAGENTS_MASTER_KEY_FILE = paths[1]
    assert "copy it from a host that has it" in str(keys.refusal())
    connection.close()
