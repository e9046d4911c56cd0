"""An operator has the system asked again about a call: a worker asks, and the answer is shown."""

from __future__ import annotations

import pytest

from durableagents import DidNotHappen
from ledger.actors import Actor
from runs.models import Run
from tests.contrib.change_control.test_settling import FAMILIES, guarded, refused_late, says, word
from tests.integration.approvals.setup import boss, somebody
from tests.integration.runs.stage import (
    Stage,
    problems,
)
from tests.integration.runs.test_asking_upstream import FOUND, answers, ask, hooked, told
from tests.world import Outside, Toolbox


@pytest.fixture
def run(stage: Stage, tools: Toolbox, outside: Outside) -> Run:
    return hooked(stage, tools, outside)


@pytest.fixture
def olga(stage: Stage) -> Actor:
    return somebody("olga", "operator")


def test_what_is_told_late_is_told_alongside_it(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    answers(outside, FOUND)
    ask(run, olga)
    stage.drive()
    refused_late(stage, run)
    assert told(run).answer == "happened" and problems(run) == []


def test_uninformative_answer_keeps_the_first_word(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    boss()
    somebody("second", is_superuser=True, is_staff=True)
    ben = somebody("ben", "operator")
    guarded(*FAMILIES)
    says(run, olga)
    answers(outside, None)
    ask(run, ben)
    stage.drive()
    assert (word(run) or pytest.fail("it is gone")).is_open
    answers(outside, DidNotHappen())
    ask(run, ben)
    stage.drive()
    assert not (word(run) or pytest.fail("it is gone")).is_open, "what it tells is looked at first"
    assert says(run, ben) is not None and says(run, olga) is None and problems(run) == []
