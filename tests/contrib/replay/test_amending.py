"""Approving with changes: the new question, the arguments that may change, and other rules that apply."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from durableagents.contrib.replay.checkpoints import replay_checkpoints
from durableagents.contrib.replay.exporting import ExportOptions, export
from ledger.actors import Actor
from ledger.clock import database_now
from tests.integration.approvals.conftest import fiona  # noqa: F401 (fixtures)
from tests.integration.approvals.test_amending import asked, change, paying, sent
from tests.integration.runs.stage import Stage
from tests.world import Outside, Toolbox

pytestmark = pytest.mark.django_db


def test_a_change_is_replayed(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor, tmp_path: Path) -> None:
    """By the same code and by a later version: the node makes the same request and gets its result."""
    agent = paying(tools)
    first = asked(stage, agent)
    change(first, fiona, amount=2500)
    assert stage.drive() == "completed"
    done = export(tmp_path / "kept", ExportOptions(50, database_now() - timedelta(days=1), payloads="full"))
    assert done.left_out == []
    (replayed,) = replay_checkpoints(tmp_path / "kept", [agent])
    assert replayed.answered >= 1 and sent(outside) == [2500]
