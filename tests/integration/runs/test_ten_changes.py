"""docs/versions.md: what becomes of two hundred parked runs when their agent is changed in ten ways."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger import events as e
from runs.engine.agents import Agent, registry
from runs.fleet.agent_versions import VersionChanged
from runs.fleet.version_changes import changed_here
from runs.models import Run
from runs.services import lifecycle, signals
from tests.integration.runs import desk
from tests.integration.runs.stage import Stage, announce, events, fresh, output, problems
from tests.tiers import many
from tests.world import SHOP

PAGE = Path(__file__).parents[3] / "docs" / "versions.md"
EACH = many(10, 1)  # runs per change and column; together the page's two hundred
RUNS = 20 * EACH
_ROW = re.compile(r"^\| (a[^|]*|another[^|]*) \| `([^|]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def table() -> dict[str, tuple[str, str, str]]:
    """Return per change: production's refusal, the result beside a bumped version, and in development."""
    return {name: (found, beside, later) for name, found, beside, later in _ROW.findall(PAGE.read_text())}


@pytest.fixture(autouse=True)
def nobody_knows_it() -> Iterator[None]:
    desk.forget()
    yield
    desk.forget()


def stage_is(settings: Any, name: str) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"stage": name})


def known(*agents: Agent) -> None:
    desk.forget()
    for agent in agents:
        registry.add(agent)


def became(run: Run) -> str:
    run = fresh(run)
    if str(run.state) == "completed":
        return f"goes on: {output(run)['ref']}"
    stops = [event.reason for event in events(run, e.OperatorNeeded)]
    return f"stops: {stops[-1]}" if stops else f"waits for {run.waits.get(resolved_at=None).detail['queue']}"


def test_the_page_has_ten_changes_and_they_are_these() -> None:
    assert list(table()) == list(desk.CHANGES) and len(table()) == 10


def test_two_hundred_parked_runs_fare_as_the_page_says(stage: Stage, tmp_path: Path, settings: Any) -> None:
    first = desk.loaded(desk.written(tmp_path / "first"))
    sent = sys.modules["desk.outside"].SENT
    stage_is(settings, "production")
    announce(stage)
    runs = [stage.start(first, to=f"vendor {n}", amount=500) for n in range(RUNS)]
    for _ in runs:
        assert stage.drive() == "parked"
    for run in runs:
        signals.signal(run.id, "go", {}, by=SHOP)
    waiting, found = iter(runs), {}
    for n, change in enumerate(desk.CHANGES):
        changed = refused_in_production(stage, settings, desk.written(tmp_path / f"same{n}", change))
        assert Run.objects.filter(ready_at__isnull=False).count() == RUNS - n * 2 * EACH, "nobody touches a run"
        beside = beside_a_bumped_one(stage, first, tmp_path / f"next{n}", change, f"1.0.{n + 1}", waiting)
        stage_is(settings, "development")
        known(changed)
        assert "desk.outside" not in sys.modules or sys.modules["desk.outside"].SENT is not sent
        found[change] = (change_here(changed), beside, driven(stage, waiting))
    assert found == table()
    assert [amount for _, amount in sent].count(1) == RUNS, "what was done before is done once, whatever came later"
    assert [problem for run in runs[::EACH] for problem in problems(run)] == []


def refused_in_production(stage: Stage, settings: Any, folder: Path) -> Agent:
    """Start a process with changed code under the version: it refuses the code and touches no run."""
    stage_is(settings, "production")
    desk.forget()
    changed = desk.loaded(folder)
    announce(stage)
    assert stage.drive() == "idle" and desk.GRAPH_ID not in registry.graph_ids()
    with pytest.raises(VersionChanged) as refused:
        lifecycle.start(desk.GRAPH_ID, {"to": "x", "amount": 1}, by=SHOP)
    assert change_here(changed) in refused.value.detail
    return changed


def change_here(agent: Agent) -> str:
    (change,) = changed_here([agent])
    return change.told


def beside_a_bumped_one(
    stage: Stage, first: Agent, folder: Path, change: str, version: str, waiting: Iterator[Run]
) -> str:
    """Start a process with the changed code under its own number next to the runs' version."""
    desk.forget()
    bumped = desk.loaded(desk.written(folder, change, version=version))
    known(first, bumped)
    announce(stage)
    assert {first.graph_id, bumped.graph_id} <= set(registry.graph_ids())
    return driven(stage, waiting)


def driven(stage: Stage, waiting: Iterator[Run]) -> str:
    runs = [next(waiting) for _ in range(EACH)]
    for _ in runs:
        stage.drive()
    (end,) = {became(run) for run in runs}
    assert {fresh(run).graph_id for run in runs} == {desk.GRAPH_ID}
    return end
