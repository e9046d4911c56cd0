"""Runs with gates, driven by product code, and their bundles."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from approvals.models import Approval
from durableagents.contrib.evidence import verify
from durableagents.contrib.evidence.export import export
from durableagents.contrib.evidence.leaving_out import Choice
from ledger.actors import Actor
from runs.models import Run
from tests.contrib.seals.conftest import data, witness
from tests.integration.approvals.setup import buying, say, somebody
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools
from tests.integration.runs.stage import Stage
from tests.world import Toolbox

__all__ = ["_agents_of_this_test", "_django_db_marker", "data", "outside", "stage", "tools", "witness"]
EVERYTHING = Choice()
OPS = Actor("os", "ops", role="operator", auth="shell")

Saved = Callable[[bytes], Path]


def bundle_of(*run_ids: UUID, choice: Choice = EVERYTHING, by: Actor = OPS) -> bytes:
    """Export these runs; return the bundle."""
    file = io.BytesIO()
    export(run_ids, file, by=by, choice=choice)
    return file.getvalue()


@dataclass
class Verdict:
    """The output of verify.py."""

    code: int
    text: str
    lines: list[str] = field(default_factory=list)


def verified(bundle: Path, *options: object) -> Verdict:
    """Verify a bundle in this process."""
    items: list[str] = []
    code = verify.main([str(bundle), *map(str, options)], items.append)
    return Verdict(code, "".join(items), [line.strip() for line in "".join(items).splitlines()])


def verified_alone(folder: Path, *options: str, python: str = sys.executable) -> Verdict:
    """Run the verify.py that a folder holds: without site packages, environment or other modules of ours."""
    command = [python, "-I", "-S", "verify.py", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return Verdict(done.returncode, done.stdout + done.stderr)


@pytest.fixture
def paid(stage: Stage, tools: Toolbox) -> UUID:
    """Return a completed run: Fiona approved a payment of 5,000 dollars, which was sent."""
    stage.start(buying(tools))
    assert stage.drive() == "parked"
    say(Approval.objects.get(state="open"), somebody("fiona", "approver_finance"))
    assert stage.drive() == "completed"
    return Run.objects.get(state="completed").pk


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[bytes], Path]:
    """Write a bundle to a file of its own."""
    count = 0

    def write(content: bytes) -> Path:
        nonlocal count
        count += 1
        path = tmp_path / f"bundle-{count}.zip"
        path.write_bytes(content)
        return path

    return write
