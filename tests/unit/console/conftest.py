"""The agent on the pages under test."""

from tests.integration.console.conftest import agent

__all__ = ["agent"]
