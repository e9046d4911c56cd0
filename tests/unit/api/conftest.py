"""The agent that requests under test are about."""

from tests.integration.api.conftest import order_agent

__all__ = ["order_agent"]
