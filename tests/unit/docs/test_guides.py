"""The guides that need no server run as written, from the first block to the last."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from durableagents.contrib.replay.management.commands.checkpoints import Command
from durableagents.contrib.replay.plugin import pytest_addoption
from runs.engine.agents import registry
from tests.cases import each_case
from tests.unit.docs.pages import ROOT, blocks, run_python

HOW_TO = ROOT / "docs" / "how-to"
IN_MEMORY = [
    HOW_TO / f"{name}.md"
    for name in (
        "callbacks",
        "child-runs-and-messages",
        "documents-and-screening",
        "gates-and-amounts",
        "package-and-test-agents",
        "pydantic-ai",
        "undo",
        "unsafe-tools",
    )
]
REPLAY = HOW_TO / "replay-in-ci.md"


@pytest.fixture(autouse=True)
def _forget_the_guides_agents() -> Iterator[None]:
    known = set(registry.graph_ids())
    yield
    for graph_id in set(registry.graph_ids()) - known:
        registry.remove(graph_id)


@each_case("page", IN_MEMORY)
def test_the_guide_runs_and_prints_what_it_shows(page: Path) -> None:
    """Each guide ends with tests of its own agent."""
    assert sum("Harness(" in block.text for block in blocks(page)) >= 1
    assert run_python(page) == []


def test_the_workflow_is_one_and_its_commands_are_understood() -> None:
    (text,) = (block.text for block in blocks(REPLAY) if block.language == "yaml")
    steps = [step.get("run", "") for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    (export,) = (step for step in steps if "checkpoints export" in step)
    given = Command().create_parser("manage.py", "checkpoints").parse_args(shlex.split(export)[3:])
    assert given.limit == 50 and given.payloads == "encrypted" and given.refresh
    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    known = {name for option in parser.getgroup("durableagents").options for name in option.names()}
    assert set(re.findall(r"--checkpoints[a-z-]*", REPLAY.read_text())) <= known
