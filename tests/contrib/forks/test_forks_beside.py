"""A run and its fork: neither knows the other's effects, so the origin is never resumed unseen."""

from __future__ import annotations

import pytest

from ledger.errors import IllegalTransition
from runs.models import Run
from runs.services import lifecycle, signals
from tests.contrib.forks.test_forks import AGAIN, asked, fork, mailer, say
from tests.integration.runs.stage import Stage, fresh, head, problems
from tests.integration.runs.test_children import everything, parent_of
from tests.world import OLGA, SHOP, Outside, Toolbox

WHY = "because it must be"


@pytest.fixture
def run(stage: Stage, tools: Toolbox) -> Run:
    run = stage.start(mailer(tools, "paused-origin"))
    stage.settle(run)
    lifecycle.pause(run.pk, by=OLGA, justification=WHY)
    return fresh(run)


def acted(stage: Stage, run: Run) -> Run:
    made = fork(run, 1)
    signals.signal(made.pk, "go", None, by=SHOP)
    stage.settle(made)
    say(made, AGAIN)
    assert stage.settle(made) == "completed"
    return made


def test_a_paused_origin_is_not_resumed_once_its_fork_has_acted(stage: Stage, run: Run, outside: Outside) -> None:
    made = acted(stage, run)
    signals.signal(run.pk, "go", None, by=SHOP)
    before = head(run).seq
    with pytest.raises(IllegalTransition, match=f"started again as run {made.pk}.*fork this one at its newest"):
        lifecycle.resume(run.pk, by=OLGA, justification=WHY)
    assert (str(fresh(run).state), head(run).seq) == ("paused", before)
    stage.settle(run)
    assert len(outside.executed("mail")) == 1
    other = fork(fresh(run), 1)
    signals.signal(other.pk, "go", None, by=SHOP)
    stage.settle(other)
    assert "Nobody can say that all" in asked(other).detail["about"], "the way on: each call is asked about"
    lifecycle.cancel(run.pk, by=OLGA, justification=WHY)
    assert str(fresh(run).state) == "cancelled" and problems(run) == problems(made) == []


def test_nor_while_its_fork_is_at_work(stage: Stage, run: Run) -> None:
    made = fork(run, 1)
    with pytest.raises(IllegalTransition, match=str(made.pk)):
        lifecycle.resume(run.pk, by=OLGA, justification=WHY)
    lifecycle.cancel(made.pk, by=OLGA, justification=WHY)
    lifecycle.resume(run.pk, by=OLGA, justification=WHY)
    assert str(fresh(run).state) == "waiting_event", "a fork that did nothing is in nobody's way"


def test_a_parent_does_not_set_its_forked_child_going(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(parent_of(mailer(tools, "paused-child"), "a"))
    everything(stage)
    child = Run.objects.get(parent=run.pk)
    lifecycle.pause(run.pk, by=OLGA, justification=WHY)
    everything(stage)
    assert str(fresh(child).state) == "paused"
    acted(stage, fresh(child))
    lifecycle.resume(run.pk, by=OLGA, justification=WHY)
    signals.signal(child.pk, "go", None, by=SHOP)
    everything(stage)
    assert str(fresh(child).state) == "paused" and len(outside.executed("mail")) == 1
