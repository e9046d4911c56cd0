"""The authoring guide runs as written, from the first block to the last."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from durableagents import Agent
from runs.engine.agents import registry
from tests.cases import each_case

DOCS = Path(__file__).resolve().parents[3] / "docs"
GUIDE, PYDANTIC_AI = DOCS / "agents.md", DOCS / "pydantic-ai.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _forget_the_guides_agent() -> Iterator[None]:
    yield
    for made in ("refund-desk", "refund-clerk", "sum-up", "delivery"):
        registry.remove(f"{made}@1.0.0")
    sys.modules.pop("refund_desk", None)


def test_every_block_of_the_guide_is_python() -> None:
    languages = [language for language, _ in _BLOCK.findall(GUIDE.read_text())]
    assert len(languages) >= 6 and set(languages) == {"python"}


@each_case("page", [GUIDE, PYDANTIC_AI])
def test_the_guide_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    """As one module, as a reader would paste it; its own assertions are the test."""
    path = tmp_path / "refund_desk.py"
    path.write_text("\n\n".join(code for kind, code in _BLOCK.findall(page.read_text()) if kind == "python"))
    spec = importlib.util.spec_from_file_location("refund_desk", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["refund_desk"] = module
    spec.loader.exec_module(module)
    agent = module.agent
    assert isinstance(agent, Agent)
    agent.validate()


def test_every_file_that_the_guide_names_exists() -> None:
    root = DOCS.parent
    named = set(re.findall(r"`((?:durableagents|runs)/[\w/]+(?:\.py|/))`", GUIDE.read_text()))
    assert named and all((root / name).exists() for name in named)
    assert all(
        (root / "durableagents" / "demo" / f"{name}.py").exists() for name in ("upstream", "smtp", "model", "vault")
    )
