"""The bench runs: every part, with next to nothing to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

pytestmark = pytest.mark.timeout(600)
PARTS = ("W1", "W2", "W3", "W4", "W5", "W7", "slot", "stored", "event committed")


def test_the_page_shows_figures_of_every_part() -> None:
    page = (CHECKOUT / "docs" / "explanation" / "performance.md").read_text()
    assert [part for part in PARTS if f"\n| {part}" not in page] == []


def test_every_part_of_the_bench_gives_its_figures(tmp_path: Path) -> None:
    text = tmp_path / "figures.json"
    parts = "W1,observed,W3,W4,W5,W7,slots,storage,talk,socket,families,page"  # without the model calls of two seconds
    command = [sys.executable, "-m", "tests.system.bench", "--scale", "0.002", "--only", parts, "--json", str(text)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=460)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row for row in json.loads(text.read_text())["figures"]}
    for part in PARTS:
        assert any(name.startswith(part) for name in rows), f"no figure of {part}"
    assert any(name.startswith("run page") and name.endswith("live refresh") for name in rows)
    assert rows["W5 effects at the other side"]["note"].endswith(" 0 duplicate")
    assert "made short" in rows["stored for a conversation of 20 turns, random bytes"]["note"]
    assert "6 children of one parent" in rows
    assert "× without them" in rows["W1 with metrics and traces, keyed, 1 run(s)"]["note"]
    assert all(str(row["name"]) in done.stdout for row in rows.values())


@pytest.mark.long
@pytest.mark.timeout(420)  # the server's counts settle slowly, several times
def test_what_runs_alongside_the_work_is_measured_too(tmp_path: Path) -> None:
    text = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.system.bench", "--scale", "0.002", "--only", "beside", "--json", str(text)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    names = " ".join(row["name"] for row in json.loads(text.read_text())["figures"])
    assert all(part in names for part in ("at rest", "a run", "timers", "after a restart"))
