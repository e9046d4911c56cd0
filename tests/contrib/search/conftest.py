"""Runs on the real database, as in tests/integration/runs, and callers of the API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.api.conftest import auditor, caller, integrator, operator
from tests.integration.runs.conftest import _agents_of_this_test, mood, outside, situations, stage, tools, wire

__all__ = [
    "_agents_of_this_test",
    "auditor",
    "caller",
    "integrator",
    "mood",
    "operator",
    "outside",
    "situations",
    "stage",
    "tools",
    "wire",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, since pytest-django creates a database only if some test has the mark."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("django_db") is None:
            item.add_marker(pytest.mark.django_db)


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Skip pytest-django's flush: the stage cleans up, and `db` rolls back."""
