"""Runs with child runs, set up for tests."""

from __future__ import annotations

from durableagents import Agent
from runs.models import Run
from tests.integration.runs.stage import Stage, fresh
from tests.integration.runs.test_children import children, parent_of


def with_child(stage: Stage, helper: Agent, text: str = "a") -> tuple[Run, Run]:
    run = stage.start(parent_of(helper, text))
    assert stage.drive() == "parked"
    (child,) = children(run)
    return run, child


def ended(stage: Stage, helper: Agent, text: str = "a") -> tuple[Run, Run]:
    """Return a parent and its one ended child, of which the parent doesn't know."""
    run, child = with_child(stage, helper, text)
    stage.drive()
    assert str(fresh(child).state) in ("completed", "failed")
    return run, child
