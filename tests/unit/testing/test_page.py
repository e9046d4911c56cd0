"""The page about tests runs as it is written; its workflow says what the commands take."""

from __future__ import annotations

import re
import shlex
from typing import Any

import yaml

from durableagents.contrib.replay.management.commands.checkpoints import Command
from durableagents.contrib.replay.plugin import pytest_addoption
from runs.engine.agents import registry
from tests.unit.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "testing.md"


def test_every_block_of_python_runs() -> None:
    code = "\n\n".join(block.text for block in blocks(PAGE) if block.language == "python")
    try:
        exec(compile(code, str(PAGE), "exec"), {"__name__": "testing_page"})
    finally:
        registry.remove("payer@1.0.0")


def test_the_workflow_is_one_and_its_commands_are_understood() -> None:
    (text,) = (block.text for block in blocks(PAGE) if block.language == "yaml")
    workflow = yaml.safe_load(text)
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    (export,) = (step["run"] for step in steps if "checkpoints export" in step.get("run", ""))
    parser = Command().create_parser("manage.py", "checkpoints")
    args = parser.parse_args(shlex.split(export)[3:])
    assert args.limit == 50 and args.payloads == "encrypted" and args.refresh
    (replay,) = (step["run"] for step in steps if "pytest" in step.get("run", ""))
    known: list[str] = []

    class Group:
        def addoption(self, name: str, **_: Any) -> None:
            known.append(name)

    class Parser:
        def getgroup(self, *_: str) -> Group:
            return Group()

    pytest_addoption(Parser())  # type: ignore[arg-type]
    assert {word for word in shlex.split(replay) if word.startswith("--")} <= set(known)
    assert set(re.findall(r"--checkpoints[a-z-]*", PAGE.read_text())) <= set(known)
