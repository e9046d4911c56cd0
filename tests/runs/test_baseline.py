"""`manage.py agents check`: a change without a bump is refused by name before any worker does, and no database is
needed for it."""

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

from durableagents import Agent, Context, End, Migration
from runs.engine.agents import registry
from runs.engine.fingerprint import second_scheme
from runs.engine.fingerprint.schemes import second_parts
from tests.runs.stage import Stage
from tests.world import Notes, Outside, Toolbox, agent_of, ends_with


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the agents of a test are known to it."""
    monkeypatch.setattr(registry, "_agents", {})
    monkeypatch.setattr(registry, "_quarantined", set())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agents.lock.json"


def check(file: Path, *more: str) -> tuple[int, str]:
    """Exit code and all that was said."""
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
        code, said = check(file, *more)
        assert code == 1 and "refund@1.0.0: pay: gate queue finance_po → legal; bump to 1.0.1" in said
        assert file.read_bytes() == written


def test_a_bumped_version_beside_the_old_one_is_new_until_it_is_recorded(file: Path) -> None:
    gated()
    check(file, "--write")
    gated(None, version="1.0.1")
    code, said = check(file)
    assert code == 1 and "refund@1.0.1: new; record it with --write" in said
    assert check(file, "--write")[0] == 0 and check(file) == (0, "2 as recorded, 0 new\n")


@pytest.mark.django_db
def one_up(state: dict[str, Any]) -> dict[str, Any]:
    return state


def another_up(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"seen": ["another"]}


def upgrading(version: str, *steps: Any) -> Agent:
    return agent_of(ends_with(1), name="bookkeeper", version=version, upgraders=dict(enumerate(steps, 1)))


def test_an_upgrader_that_changes_or_comes_or_goes_is_a_change_without_a_bump(file: Path) -> None:
    upgrading("1.0.0", one_up)
    check(file, "--write")
    written = file.read_bytes()
    for steps, told in (
        ((another_up,), "upgrader 1: code"),
        ((one_up, another_up), "upgrader 2: code added"),
        ((), "upgrader 1: code dropped"),
    ):
        upgrading("1.0.0", *steps)
        code, said = check(file, "--write")
        assert code == 1 and "bookkeeper@1.0.0" in said and told in said, said
        assert file.read_bytes() == written
    upgrading("1.0.0", one_up)
    assert check(file)[0] == 0


def test_a_new_version_that_left_its_upgraders_behind_is_refused_by_name(file: Path, stage: Stage) -> None:
    upgrading("1.0.0")
    upgrading("1.10.0", one_up, another_up)
    assert check(file, "--write")[0] == 0
    written = file.read_bytes()
    registry.remove("bookkeeper@1.10.0")  # also where its code is gone from here
    upgrading("1.11.0", one_up)
    code, said = check(file, "--write", "--forget", "bookkeeper@1.10.0")
    assert code == 1 and file.read_bytes() == written
    assert "bookkeeper@1.11.0: its state has number 2, and that of bookkeeper@1.10.0 has 3" in said
    upgrading("1.10.0", one_up, another_up)
    upgrading("1.11.0", one_up, another_up)
    upgrading("1.9.0")  # older than those with higher numbers: nothing is lost
    assert check(file, "--write")[0] == 0


def test_a_version_that_is_gone_is_refused_until_somebody_says_that_it_may(file: Path, stage: Stage) -> None:
    gated()
    gated(None, version="1.0.1")
    check(file, "--write")
    written = file.read_bytes()
    registry.remove("refund@1.0.0")
    for more in ([], ["--write"], ["--write", "--forget", "refund@1.0.1"], ["--forget", "refund@1.0.0"]):
        code, said = check(file, *more)
        assert code in (1, 2) and ("refund@1.0." in said or "--write" in said)
        assert file.read_bytes() == written, more
    assert check(file, "--write", "--forget", "refund@1.0.0")[0] == 0
    assert list(json.loads(file.read_bytes())["agents"]) == ["refund@1.0.1"]


@pytest.mark.django_db
def test_with_a_database_it_says_how_many_of_its_runs_are_under_way_and_keeps_it(file: Path, stage: Stage) -> None:
    async def waits(state: Notes, ctx: Context) -> End:
        await ctx.sleep(3600)
        return End()

    agent = agent_of(waits, name="parked")
    for _ in range(3):
        stage.start(agent)
        assert stage.drive() == "parked"
    check(file, "--write")
    registry.remove(agent.graph_id)
    for more in ([], ["--write", "--forget", agent.graph_id]):
        code, said = check(file, *more)
        assert code == 1 and "parked@1.0.0: gone, and 3 of its runs are under way" in said


def spoiled(whole: dict[str, Any]) -> dict[str, bytes]:
    """What may be in the file instead of a baseline, by what is said of it."""

    def made(**change: Any) -> bytes:
        return json.dumps(whole | change).encode()

    (entry,) = whole["agents"].values()
    other = json.loads(json.dumps(entry))
    other["parts"]["tools"]["pay"]["gate"]["queue"] = "nobody"
    text = json.dumps(whole)
    return {
        "is damaged: Expecting": b"<<<<<<< HEAD\n{",
        "is damaged: Expecting value": b"",
        "is damaged: 'utf-8'": b"\xff\xfe{}",
        "is damaged: maximum recursion": b"[" * 200_000,
        "is damaged: NaN": b'{"kind": NaN}',
        "'kind' is there twice": b'{"kind": "a", "kind": "b"}',
        "is no baseline of agents": b'{"name": "left-pad", "lockfileVersion": 3}',
        "it doesn't say that it is one": b"[]",
        "has format 2, and this release reads 1": made(format=2),
        "has format True": made(format=True),
        "it lists no agents": made(agents=[]),
        "'../x' is no agent's name": made(agents={"../x": entry}),
        "lacks its fingerprint or its parts": made(agents={"refund@1.0.0": {"fingerprint": "3:"}}),
        "the parts of refund@1.0.0 don't give its fingerprint": made(agents={"refund@1.0.0": other}),
        "has a scheme unknown here": text.replace('"fingerprint": "3:', '"fingerprint": "4:').encode(),
    }


def test_a_damaged_future_or_foreign_baseline_is_refused_by_name_and_nothing_is_written(file: Path) -> None:
    gated()
    check(file, "--write")
    for told, content in spoiled(json.loads(file.read_bytes())).items():
        file.write_bytes(content)
        for more in ([], ["--write"]):
            code, said = check(file, *more)
            assert code == 2 and told in said and "Nothing was compared or written" in said, (told, said)
            assert file.read_bytes() == content
    file.unlink()
    file.mkdir()
    assert check(file, "--write")[0] == 2


def test_a_file_that_can_not_be_replaced_is_left_as_it_is(file: Path) -> None:
    gated()
    lost = file.parent / "nowhere" / file.name
    code, said = check(lost, "--write")
    assert code == 2 and "can't be written" in said


def test_a_baseline_of_the_scheme_before_is_of_this_very_code_or_refused(file: Path) -> None:
    agent = gated()
    check(file, "--write")
    whole = json.loads(file.read_bytes())
    whole["agents"]["refund@1.0.0"] = {"fingerprint": second_scheme(agent), "parts": second_parts(agent)}
    file.write_text(json.dumps(whole))
    assert check(file)[0] == 0
    gated(None)
    code, said = check(file)
    assert code == 1 and "refund@1.0.0: pay: gate dropped; bump to 1.0.1" in said


def test_it_needs_no_database(tmp_path: Path) -> None:
    """As CI runs it, where there is none; also where a version is gone, which is when it would like to have one."""
    here, env = Path.cwd(), os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"}
    env["DATABASE_URL"] = env["DATABASE_OWNER_URL"] = "postgresql://nobody@127.0.0.1:9/nowhere"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        asked = [sys.executable, str(here / "manage.py"), "agents", *words]
        return subprocess.run(asked, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    listed = run("list")
    assert listed.returncode == 0 and "vendor-onboard@1.0.0\t7 nodes" in listed.stdout, listed.stderr
    assert run("check", "--write").returncode == 0 and run("check").returncode == 0
    file = tmp_path / "agents.lock.json"
    whole = json.loads(file.read_bytes())
    whole["agents"]["vendor-onboard@0.9.0"] = whole["agents"]["vendor-onboard@1.0.0"]
    file.write_text(json.dumps(whole))
    gone = run("check")
    assert gone.returncode == 1 and "vendor-onboard@0.9.0: gone (its runs can't be counted)" in gone.stderr


def numbered(version: str, **more: Any) -> Agent:
    return agent_of(ends_with(1), name="refund", version=version, **more)


def test_a_version_that_leaves_the_steps_behind_is_refused_unless_a_function_takes_the_state_back(file: Path) -> None:
    steps: dict[int, Any] = {1: lambda state: state, 2: lambda state: state}
    numbered("1.0.0", upgraders=steps)
    check(file, "--write")
    numbered("1.1.0")
    code, said = check(file, "--write")
    assert code == 1 and "refund@1.1.0: its state has number 1, and that of refund@1.0.0 has 3" in said
    numbered("1.1.0", migrations=[Migration("1.0.0")])
    assert check(file, "--write")[0] == 1, "it says nothing of the state"
    numbered("1.1.0", migrations=[Migration("0.9.0", {}, lambda state: state)])
    assert check(file, "--write")[0] == 1, "it takes another one back"
    numbered("1.1.0", migrations=[Migration("1.0.0", {}, lambda state: state)])
    assert check(file)[0] == 1 and check(file, "--write") == (0, "1 as recorded, 1 new\n")
    assert check(file) == (0, "2 as recorded, 0 new\n")
    numbered("1.2.0", upgraders=steps)
    assert check(file, "--write")[0] == 0
