"""Runs that start others as steps, brought to where a story begins."""

from __future__ import annotations

from durableagents import Agent
from runs.models import Run
from tests.integration.runs.stage import Stage, fresh
from tests.integration.runs.test_children import children, parent_of


def with_child(stage: Stage, helper: Agent, text: str = "a") -> tuple[Run, Run]:
    """A parent that waits for its one child, which nobody has driven yet."""
    run = stage.start(parent_of(helper, text))
    assert stage.drive() == "parked"
    (child,) = children(run)
    return run, child


def ended(stage: Stage, helper: Agent, text: str = "a") -> tuple[Run, Run]:
    """A parent whose one child has ended, which nobody has told."""
    run, child = with_child(stage, helper, text)
    stage.drive()
    assert str(fresh(child).state) in ("completed", "failed")
    return run, child
