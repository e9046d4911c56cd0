from tests.integration.demo.conftest import _process, sandbox
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "_process", "outside", "sandbox", "stage", "tools"]
