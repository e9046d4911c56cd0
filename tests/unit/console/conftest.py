"""The agent that the pages under test are about."""

from tests.integration.console.conftest import agent

__all__ = ["agent"]
