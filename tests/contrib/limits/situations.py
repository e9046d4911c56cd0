"""Runs that wait for a shared budget, for test_why.py and test_housekeeping.py in tests/integration/runs."""

from __future__ import annotations

from typing import Any

from runs.models import Run
from tests.contrib.limits.budgets import pool, raised
from tests.integration.runs.test_budgets import ordering


def wait_for_budget(lives: Any) -> Run:
    pool(limit=1)
    found: Run = lives.parked(ordering(lives.tools, "order", "order"))
    return found


def budget_raised(scene: Any) -> Run:
    shared = pool(limit=1)
    run: Run = scene.parked(ordering(scene.tools, "order", "order"), text="x")
    raised(shared, 2)
    return run


MORE = ("pool", wait_for_budget, "pool")
SCENES = {"a shared budget": (budget_raised, "WaitResolved")}
