from __future__ import annotations

from pathlib import Path

import pytest

from durableagents.identity.auth import issue_key
from tests.integration.api.conftest import Api, person
from tests.integration.console.conftest import Reader
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, mood, outside, stage, tools
from tests.integration.runs.stage import Stage

__all__ = ["_agents_of_this_test", "_django_db_marker", "mood", "outside", "stage", "tools"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, since pytest-django creates a database only if some test has the mark."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.django_db)


@pytest.fixture
def operator(stage: Stage) -> Api:
    return Api(issue_key(person("opal", "operator"), "test"))


@pytest.fixture
def integrator(stage: Stage) -> Api:
    return Api(issue_key(person("ina", "integrator"), "test"))


@pytest.fixture
def olga(stage: Stage) -> Reader:
    return Reader(person("olga", "operator"))
