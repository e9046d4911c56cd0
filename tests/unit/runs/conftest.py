"""Agents that a test declares are forgotten after it."""

from tests.integration.runs.conftest import _agents_of_this_test

__all__ = ["_agents_of_this_test"]
