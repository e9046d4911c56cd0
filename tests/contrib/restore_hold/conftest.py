"""Runs on the real database, and hosts with head files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "outside", "stage", "tools"]


@pytest.fixture
def on_host(tmp_path: Path, settings: Any) -> Callable[[str], Path]:
    """Make this process one of another host: of the same database, with a head file of its own, which is returned."""

    def become(name: str) -> Path:
        file = tmp_path / name / "restore.head"
        changed = {"restore_hold": True, "restore_head": file}
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update=changed)
        return file

    return become
