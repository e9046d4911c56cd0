"""The agent in the requests under test."""

from tests.integration.api.conftest import order_agent

__all__ = ["order_agent"]
