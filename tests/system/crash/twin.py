"""The crash-test agent under a second, lower version, the target of migrations."""

from __future__ import annotations

from runs.engine.agents import registry
from tests.system.crash.agents import agent, twin_of

twin = twin_of(agent, "0.9.0")
registry.add(twin)
