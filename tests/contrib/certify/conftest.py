from __future__ import annotations

from tests.integration.runs.conftest import _agents_of_this_test, outside, stage, tools

__all__ = ["_agents_of_this_test", "outside", "stage", "tools"]
