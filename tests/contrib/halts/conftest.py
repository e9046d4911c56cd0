from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, one_batch, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "one_batch", "outside", "stage", "tools"]
