import pytest

from ledger.actors import Actor
from tests.integration.approvals.setup import somebody
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "outside", "stage", "tools"]


@pytest.fixture
def fiona() -> Actor:
    return somebody("fiona", "approver_finance")
