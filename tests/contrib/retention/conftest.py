"""Runs on the real database, as in tests/integration/runs, and a folder for archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.conftest import caller
from tests.integration.runs.conftest import _agents_of_this_test, outside, stage, tools

__all__ = ["_agents_of_this_test", "caller", "outside", "stage", "tools"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, since pytest-django creates a database only if some test has the mark."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.django_db)


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Skip pytest-django's flush: the stage cleans up."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: Any) -> Path:
    """The folder of archives, configured."""
    found = tmp_path / "archive"
    found.mkdir()
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"archive": found})
    return found
