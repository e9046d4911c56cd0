from __future__ import annotations

import pytest

from durableagents.identity.auth import issue_key
from tests.integration.api.conftest import Api, person
from tests.integration.console.conftest import Reader
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, mood, outside, stage, tools
from tests.integration.runs.stage import Stage

__all__ = ["_agents_of_this_test", "_django_db_marker", "mood", "outside", "stage", "tools"]


@pytest.fixture
def operator(stage: Stage) -> Api:
    return Api(issue_key(person("opal", "operator"), "test"))


@pytest.fixture
def integrator(stage: Stage) -> Api:
    return Api(issue_key(person("ina", "integrator"), "test"))


@pytest.fixture
def olga(stage: Stage) -> Reader:
    return Reader(person("olga", "operator"))
