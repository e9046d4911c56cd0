"""An integrator's agent is killed everywhere; the effects outside are the judge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from durableagents.contrib.certify.crashtest import report
from tests.cases import each_case
from tests.conftest import CHECKOUT

SANDBOX = ("--yes-this-is-a-sandbox",)


def crashtest(
    folder: Path, *words: str, given: Any = None, consent: Sequence[str] = SANDBOX, agent: str = "shop"
) -> tuple[int, str, dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input.json").write_text(json.dumps(given or {"folder": str(folder), "item": "chair {case}"}))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DURABLEAGENTS_", "DATABASE"))}
    text = folder / "report.json"
    done = subprocess.run(
        [
            sys.executable,
            "manage.py",
            "crashtest",
            agent,
            "--input",
            str(folder / "input.json"),
            "--effects",
            str(folder / "effects.jsonl"),
            "--report",
            str(text),
            *consent,
            *words,
        ],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        env=env
        | {
            "DURABLEAGENTS_AGENTS": "tests.contrib.certify.shop",
            "DJANGO_SETTINGS_MODULE": "durableagents.settings",
        },
    )
    return done.returncode, done.stdout + done.stderr, json.loads(text.read_text()) if text.exists() else {}


def cells(told: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(case["tool"], case["point"]): case["verdict"] for case in told["cases"]}


def test_the_whole_matrix_of_an_agent_that_is_right(tmp_path: Path) -> None:
    code, answer, found = crashtest(tmp_path / "shop")
    assert code == 0 and found["passed"], answer
    keyed, unsafe = (
        {p: v for (tool, p), v in cells(found).items() if tool == name} for name in ("place_order", "tell_colleague")
    )
    assert keyed == dict.fromkeys(("CP1", "CP2", "CP3", "CP4", "CP6"), "once")
    assert unsafe == {"CP1": "once", "CP2": "asked", "CP3": "asked", "CP4": "asked", "CP6": "once"}
    assert cells(found)["", "CP0"] == cells(found)["", "CP5"] == "once" and cells(found)["", "CP8"] == "not reached"
    sent = {case["point"]: case["sent"]["place_order"] for case in found["cases"] if case["tool"] == "place_order"}
    assert sent["CP3"] == sent["CP4"] == 2, "it really was killed in between, and sent again"
    assert all(case["state"] == "completed" and not case["notes"] for case in found["cases"])
    text = report.markdown(found)
    assert "**Passed.**" in text and "Signature" in text and "| `tell_colleague` | once | asked a person |" in text
    assert found["about"]["fingerprint"].startswith("3:") and len(found["record"]) >= 2 * (len(found["cases"]) + 1)


def test_a_tool_whose_other_side_ignores_keys_is_found(tmp_path: Path) -> None:
    code, answer, found = crashtest(tmp_path / "forgets", "--tools", "place_order", "--points", "CP2,CP4")
    assert code == 1 and not found["passed"] and "Not passed" in answer
    assert cells(found) == {("place_order", "CP2"): "once", ("place_order", "CP4"): "doubled"}
    (bad,) = [case for case in found["cases"] if case["verdict"] == "doubled"]
    assert bad["effects"]["place_order"] == 2 and "had 2 effects" in bad["problems"][0]
    assert "**DOUBLED**" in report.markdown(found) and "NOT PASSED" in report.markdown(found)


def test_tools_of_runs_that_it_starts_are_named_as_left_out(tmp_path: Path) -> None:
    """So that the exit code alone isn't taken for everything."""
    code, answer, found = crashtest(tmp_path / "shop", "--points", "CP2", agent="shop-buyer")
    assert code == 3 and found["passed"] and "tell_colleague of shop@1.0.0" in answer, answer
    assert found["uncovered"] == ["place_order of shop@1.0.0", "tell_colleague of shop@1.0.0"]
    text = report.markdown(found)
    assert "**Passed, but tools were left out.**" in text and "- tell_colleague of shop@1.0.0" in text


@each_case(
    "words",
    [
        [],
        ["--effects", "https://erp.example/effects"],
        ["--effects", "http://localhost.example/effects"],
        ["--effects", "http://127.0.0.1@erp.example/"],
        ["--effects", "tests.contrib.certify.shop:effect"],
    ],
)
def test_nothing_is_killed_against_what_may_be_real_unless_somebody_says_that_it_is_not(
    tmp_path: Path, words: list[str]
) -> None:
    code, answer, found = crashtest(tmp_path / "shop", *words, consent=())
    assert code == 2 and "shop@1.0.0 acts on" in answer and "--yes-this-is-a-sandbox" in answer and found == {}
    assert not (tmp_path / "shop" / "effects.jsonl").exists()


@each_case(
    ("words", "says"),
    [
        (["--points", "CP99"], "known are CP1"),
        (["--tools", "place_ordr"], "has no place_ordr"),
        (["--workers", "0"], "--workers is 1 to 16"),
        (["--answers", "none.json"], "none.json"),
    ],
)
def test_what_makes_no_test_is_refused_before_anything_is_started(tmp_path: Path, words: list[str], says: str) -> None:
    code, answer, found = crashtest(tmp_path / "shop", *words)
    assert code == 2 and says in answer and found == {} and not (tmp_path / "shop" / "effects.jsonl").exists()
