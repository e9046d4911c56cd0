from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from durableagents import Agent
from runs.engine.agents import registry
from tests.integration.runs.stage import Stage
from tests.world import Outside, Toolbox, agent_of, ends_with


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", {})
    monkeypatch.setattr(registry, "_quarantined", set())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agents.lock.json"


def check(file: Path, *more: str) -> tuple[int, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("agents", "check", "--baseline", str(file), *more, stdout=out, stderr=err)
    except CommandError as refused:
        return refused.returncode, f"{err.getvalue()}{refused}"
    return 0, out.getvalue()


def gated(gate: Any = ..., version: str = "1.0.0") -> Agent:
    tools = Toolbox(Outside())
    pay = tools.pay if gate is ... else replace(tools.pay, gate=gate)
    return agent_of(ends_with(1), tools=[pay], name="refund", version=version)


def test_what_is_as_recorded_passes_and_the_file_is_the_same_whenever_it_is_made(file: Path) -> None:
    gated()
    assert check(file)[0] == 2 and not file.exists(), "there is none yet"
    assert check(file, "--write") == (0, "0 as recorded, 1 new\n")
    written = file.read_bytes()
    assert check(file) == (0, "1 as recorded, 0 new\n") and check(file, "--write")[0] == 0
    assert file.read_bytes() == written and written.endswith(b"}\n") and os.listdir(file.parent) == [file.name]


def test_a_change_without_a_bump_is_refused_by_name_and_never_written(file: Path) -> None:
    gate = gated().tools[0].gate
    assert gate is not None
    check(file, "--write")
    written = file.read_bytes()
    gated(replace(gate, queue="legal"))
    for more in ([], ["--write"]):
        code, answer = check(file, *more)
        assert code == 1 and "refund@1.0.0: pay: gate queue finance_po → legal; bump to 1.0.1" in answer
        assert file.read_bytes() == written


def one_up(state: dict[str, Any]) -> dict[str, Any]:
    return state


def another_up(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"seen": ["another"]}


def upgrading(version: str, *steps: Any) -> Agent:
    return agent_of(ends_with(1), name="bookkeeper", version=version, upgraders=dict(enumerate(steps, 1)))


def test_a_new_version_that_left_its_upgraders_behind_is_refused_by_name(file: Path, stage: Stage) -> None:
    upgrading("1.0.0")
    upgrading("1.10.0", one_up, another_up)
    assert check(file, "--write")[0] == 0
    written = file.read_bytes()
    registry.remove("bookkeeper@1.10.0")  # also where its code is gone
    upgrading("1.11.0", one_up)
    code, answer = check(file, "--write", "--forget", "bookkeeper@1.10.0")
    assert code == 1 and file.read_bytes() == written
    assert "bookkeeper@1.11.0: its state has number 2, and that of bookkeeper@1.10.0 has 3" in answer
    upgrading("1.10.0", one_up, another_up)
    upgrading("1.11.0", one_up, another_up)
    upgrading("1.9.0")  # older than versions with higher numbers: nothing is lost
    assert check(file, "--write")[0] == 0


@pytest.mark.long
def test_it_needs_no_database(tmp_path: Path) -> None:
    """CI runs it without a database, also if a version is gone, where it would look one up."""
    here, env = Path.cwd(), os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"}
    env["DATABASE_URL"] = env["DATABASE_OWNER_URL"] = "postgresql://nobody@127.0.0.1:9/nowhere"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        items = [sys.executable, str(here / "manage.py"), "agents", *words]
        return subprocess.run(items, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    listed = run("list")
    assert listed.returncode == 0 and "vendor-onboard@1.0.0\t7 nodes" in listed.stdout, listed.stderr
    assert run("check", "--write").returncode == 0 and run("check").returncode == 0
    file = tmp_path / "agents.lock.json"
    whole = json.loads(file.read_bytes())
    whole["agents"]["vendor-onboard@0.9.0"] = whole["agents"]["vendor-onboard@1.0.0"]
    file.write_text(json.dumps(whole))
    gone = run("check")
    assert gone.returncode == 1 and "vendor-onboard@0.9.0: gone (its runs can't be counted)" in gone.stderr
