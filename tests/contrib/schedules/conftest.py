"""Callers of API and console, and runs on the real database."""

from tests.integration.api.conftest import caller, order_agent
from tests.integration.console.conftest import agent, reader
from tests.integration.runs.conftest import _agents_of_this_test, outside, stage, tools

__all__ = ["_agents_of_this_test", "agent", "caller", "order_agent", "outside", "reader", "stage", "tools"]
