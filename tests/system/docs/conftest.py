"""A real installation that the examples of the documentation are run against."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.infra.installation import Installation
from tests.unit.docs.pages import ROOT, blocks


class Documented(Installation):
    def environment(self, **extra: str) -> dict[str, str]:
        agents = {"PYTHONPATH": str(self.data.parent), "DURABLEAGENTS_AGENTS": "refund_desk"}
        return super().environment(**agents, **extra)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder: Path = tmp_path_factory.mktemp("docs")
    (agent,) = (block.text for block in blocks(ROOT / "README.md") if block.language == "python")
    (folder / "refund_desk.py").write_text(agent)
    with Documented(folder / "data") as found:
        found.up_and_ready()
        _hurry(found)
        yield found


def _hurry(found: Installation) -> None:
    """Let the portal answer at once: the examples wait for events, not for time."""
    body = json.dumps({"system": "portal", "w9_delay_seconds": 0}).encode()
    request = urllib.request.Request(
        found.demo()["sandbox_url"] + "/faults", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 200
