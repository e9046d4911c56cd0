"""A feature's guard takes part in the calls of real runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from runs import features
from runs.engine.guards import Guard
from runs.engine.logical_call import LogicalCall
from runs.engine.tools import Tool
from runs.engine.visit import Visit
from runs.services import lifecycle
from tests.integration.runs.stage import Stage, calling, fresh, problems, waiting
from tests.world import OLGA, Toolbox


class Closed(Guard):
    """Keeps calls back until it is opened."""

    is_open = is_broken = False

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        return not tool.is_pure

    async def before_try(self, call: LogicalCall) -> None:
        if self.is_broken:
            raise RuntimeError("the shop's door is stuck")
        if not self.is_open:
            await call.park_until(call.visit.journal.now() + timedelta(milliseconds=20), "waits for the shop to open")


@pytest.fixture
def guard() -> Iterator[Closed]:
    guard = Closed()
    features.install(features.Feature(name="shop", guards=(guard,)))
    yield guard
    del features.installed["shop"]


def test_a_call_waits_for_a_feature_and_goes_on(stage: Stage, tools: Toolbox, guard: Closed) -> None:
    run = stage.start(calling(tools, "mail"))
    stage.drive()
    (wait,) = waiting(run)
    assert (wait.kind, wait.detail["held"], tools.outside.executed()) == ("timer", "waits for the shop to open", [])
    guard.is_open = True
    time.sleep(0.03)
    stage.settle(run)
    assert (fresh(run).state, len(tools.outside.executed()), problems(run)) == ("completed", 1, [])


def test_a_guard_that_raises_fails_its_run_before_the_call(stage: Stage, tools: Toolbox, guard: Closed) -> None:
    guard.is_broken = True
    run = stage.start(calling(tools, "mail"))
    stage.settle(run)
    assert (fresh(run).state, tools.outside.executed()) == ("failed", [])
    guard.is_broken, guard.is_open = False, True
    lifecycle.retry(run.id, justification="the door was mended", by=OLGA)
    stage.settle(run)
    assert (fresh(run).state, len(tools.outside.executed()), problems(run)) == ("completed", 1, [])
