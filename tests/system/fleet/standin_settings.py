"""The project's settings with a stand-in for the engine, which logs its calls to STANDIN_LOG."""

import os
import sys
from pathlib import Path

from durableagents.settings import *  # noqa: F403
from tests.system.fleet import standin

sys.modules["runs.workers.run_loop"] = standin  # type: ignore[assignment]
sys.modules["runs.workers.failover"] = standin  # type: ignore[assignment]

# Code that doesn't load: a process started while this file exists ends at once.
if Path(os.environ.get("STANDIN_REFUSE") or "/nonexistent").exists():
    raise SystemExit("this version doesn't start")
