"""docs/migrating.md: what becomes of runs that are moved to their agent with the ten changes of docs/versions.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runs.models import Run
from runs.services import signals
from runs.services.migrating import acts
from runs.services.migrating.bodies import LookBody, MigrateBody
from tests.runs import desk
from tests.runs.stage import Stage, fresh, problems
from tests.runs.test_ten_changes import announce, became, known
from tests.world import OLGA, SHOP

pytestmark = pytest.mark.django_db
PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"
_ROW = re.compile(r"^\| (a[^|]*|another[^|]*) \| ([a-z]+(?: `\w+`)?) \| ([^|]+) \|$", re.MULTILINE)


@pytest.fixture(autouse=True)
def nobody_knows_it() -> Iterator[None]:
    desk.forget()
    yield
    desk.forget()


def table() -> dict[str, tuple[str, str]]:
    """Of each change: what a look says, and what becomes of the runs then."""
    return {name: (look, then) for name, look, then in _ROW.findall(PAGE.read_text())}


def test_the_page_has_the_ten_changes() -> None:
    assert list(table()) == list(desk.CHANGES)


def test_moved_runs_fare_as_the_page_says(stage: Stage, tmp_path: Path) -> None:
    first = desk.loaded(desk.written(tmp_path / "first"))
    sent = sys.modules["desk.outside"].SENT
    known(first)
    announce(stage)
    found = {}
    for n, change in enumerate(desk.CHANGES):
        known(first)
        runs = [stage.start(first, to=f"vendor {n}", amount=500) for _ in range(2)]
        for run in runs:
            assert stage.settle(run) == "parked"
        desk.forget()
        bumped = desk.loaded(desk.written(tmp_path / f"next{n}", change, version=f"1.0.{n + 1}"))
        known(first, bumped)
        found[change] = moved(stage, runs, bumped, {"wait": "hold"} if "renamed" in change else {})
    assert found == table()
    assert [amount for _, amount in sent].count(1) == 20, "what was done before is done once"


def moved(stage: Stage, runs: list[Run], to: Any, nodes: dict[str, str]) -> tuple[str, str]:
    """A look, the move, and what becomes of both runs, which is the same."""
    mapping = {"take": "take", "wait": "wait", "settle": "settle"} | nodes
    body = {"from_version": "1.0.0", "to_version": to.version, "nodes": mapping, "runs": [run.pk for run in runs]}
    looks = {(x.how, x.code) for x in acts.preview("desk", LookBody.model_validate(body))}
    did = acts.migrate("desk", MigrateBody.model_validate(body | {"justification": "the old one is wrong"}), by=OLGA)
    assert {(x.how, x.code) for x in did} == looks
    ((how, code),) = looks
    for run in runs:
        signals.signal(run.id, "go", {}, by=SHOP)
        stage.settle(run)
        assert problems(run) == [] and fresh(run).graph_id == ("desk@1.0.0" if code else to.graph_id)
    (end,) = {became(run) for run in runs}
    return f"{how} `{code}`" if code else how, end
