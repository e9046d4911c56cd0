"""Runs on the real database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.approvals.conftest import fiona
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "fiona", "outside", "stage", "tools"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, since pytest-django creates a database only if some test has the mark."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("django_db") is None:
            item.add_marker(pytest.mark.django_db)
