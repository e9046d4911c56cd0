"""Forks as people meet them, over HTTP and on a page, on the real database: the stage of tests/integration/runs."""

from __future__ import annotations

import pytest

from durableagents.identity.auth import issue_key
from tests.integration.api.conftest import Api, person
from tests.integration.console.conftest import Reader
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools
from tests.integration.runs.stage import Stage

__all__ = ["_agents_of_this_test", "_django_db_marker", "outside", "stage", "tools"]


@pytest.fixture
def operator(stage: Stage) -> Api:
    """An operator with a key."""
    return Api(issue_key(person("opal", "operator"), "test"))


@pytest.fixture
def integrator(stage: Stage) -> Api:
    """An integrator with a key."""
    return Api(issue_key(person("ina", "integrator"), "test"))


@pytest.fixture
def olga(stage: Stage) -> Reader:
    """An operator with a browser."""
    return Reader(person("olga", "operator"))
