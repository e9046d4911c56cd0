"""Pydantic AI agents in durable runs: the public names for authors of agents.

Importing this package loads no model."""

from durableagents.contrib.pydantic_ai.declaring import Outside, durable
from durableagents.contrib.pydantic_ai.tools import this_call

__all__ = ["Outside", "durable", "this_call"]
