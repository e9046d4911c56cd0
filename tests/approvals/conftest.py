"""Gates on the real database: the stage of tests/runs."""

from tests.approvals.post import postbox, room
from tests.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "outside", "postbox", "room", "stage", "tools"]
