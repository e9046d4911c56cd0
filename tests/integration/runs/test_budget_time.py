"""A run's time limit: people are asked, whatever it does at that moment; also with a model answer lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput
from runs.models import Run
from runs.services import lifecycle
from runs.services.budgets.asked import budget_wait_text
from runs.services.budgets.raising import time_is_up
from runs.workers import failover, timers
from tests.integration.runs.situations import NOT_ENDED, Situations
from tests.integration.runs.stage import Stage, at_once, dump, events, fresh, head, kinds, now
from tests.integration.runs.test_budgets import WHY, asked, is_sound, ordering, overdue, priced, raised, start, thinking
from tests.integration.runs.test_steering import check_form
from tests.world import OLGA, Toolbox

pytestmark = pytest.mark.every(4)

PAST_TIME = [name for name in NOT_ENDED if name not in ("asked_to_cancel", "doomed_unknown")]


def let_time_pass(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(time_up_at=now() - timedelta(seconds=1))
    timers.ask_for_time()


def gated(tools: Toolbox) -> Run:
    return start(ordering(tools, "pay"), wall_seconds=60)


@pytest.mark.parametrize("situation", PAST_TIME)
def test_whatever_a_run_does_people_are_asked_once(situations: Situations, situation: str) -> None:
    run = situations.make(situation)
    before = fresh(run)
    let_time_pass(run)
    is_sound(run)
    (wait,) = asked(run)
    assert wait.detail["resource"] == "time" and fresh(run).time_up_at is None
    assert str(fresh(run).state) == (str(before.state) if before.owner else "paused")
    assert head(run).is_pause_requested is (before.owner is not None)
    at = dump()
    let_time_pass(run)
    assert dump()["runs_wait"] == at["runs_wait"] and dump()["ledger_event"] == at["ledger_event"]
    with pytest.raises(IllegalTransition):
        lifecycle.resume(run.id, by=OLGA, justification=WHY)
    raised(run, wall_seconds=3600)
    is_sound(run)
    is_paused = situation.startswith("paused") or situation == "asked_to_pause"
    left = "paused" if situation.startswith("paused") else str(fresh(run).state)
    assert str(fresh(run).state) == left and not asked(run)
    assert head(run).is_pause_requested is (situation == "asked_to_pause")
    if is_paused:
        lifecycle.resume(run.id, by=OLGA, justification=WHY)
    else:
        assert str(fresh(run).state) != "paused"
    is_sound(run)


@pytest.mark.parametrize("situation", ["asked_to_cancel", "doomed_unknown", "completed", "failed", "cancelled"])
def test_what_ends_or_has_ended_is_not_asked_about(situations: Situations, situation: str) -> None:
    run = situations.make(situation)
    before = kinds(run)
    let_time_pass(run)
    time_is_up(run.id)
    assert kinds(run) == before and not asked(run)
    check_form(run)


def test_two_who_look_at_once_ask_once(stage: Stage, tools: Toolbox) -> None:
    run = gated(tools)
    Run.objects.filter(pk=run.pk).update(time_up_at=now() - timedelta(seconds=1))
    assert not [x for x in at_once(*[lambda: time_is_up(run.id)] * 4) if isinstance(x, Exception)]
    assert len(asked(run)) == 1
    is_sound(run)


def test_more_time_lets_it_wait_on(stage: Stage, tools: Toolbox) -> None:
    run = gated(tools)
    assert stage.drive() == "parked"
    let_time_pass(run)
    Run.objects.filter(pk=run.pk).update(created_at=fresh(run).created_at - timedelta(seconds=30))
    with pytest.raises(InvalidInput, match="has already taken longer than that") as refused:
        raised(run, wall_seconds=30)
    assert refused.value.extra["errors"][0]["fix"] in {f"more than {seconds} seconds" for seconds in range(30, 40)}
    raised(run, steps=100)  # it asked for time
    assert asked(run) and str(fresh(run).state) == "paused" and head(run).cap_steps == 100
    is_sound(run)
    raised(run, wall_seconds=3600)
    assert stage.drive() == "idle" and str(fresh(run).state) == "waiting_human", "nothing has come of its wait"
    assert fresh(run).time_up_at == fresh(run).created_at + timedelta(seconds=3600)
    stage.decide(run)
    assert stage.drive() == "completed"


def test_who_raises_before_its_worker_has_stopped_keeps_it_going(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order", "order"), wall_seconds=60)
    (claimed,) = stage.claim()
    let_time_pass(run)
    with pytest.raises(IllegalTransition):  # this would circumvent the question
        lifecycle.resume(run.id, by=OLGA, justification=WHY)
    raised(run, wall_seconds=3600)
    assert stage.drive_claimed(claimed) == "completed"
    is_sound(run)


def test_its_worker_stops_at_the_next_step_when_time_is_up(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order", "order"), wall_seconds=60)
    (claimed,) = stage.claim()
    let_time_pass(run)
    assert stage.drive_claimed(claimed) == "paused" and not tools.outside.requests
    is_sound(run)
    raised(run, wall_seconds=3600)
    assert stage.drive() == "completed" and len(tools.outside.requests) == 2
    is_sound(run)


def test_a_worker_that_dies_when_time_is_up_leaves_it_to_people(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order"), wall_seconds=60)
    dead = stage.hire(is_dead=True)
    assert len(stage.claim(dead)) == 1
    let_time_pass(run)
    assert failover.worker_died(dead.id, "gone") == 1
    assert stage.drive() == "paused" and not tools.outside.requests
    is_sound(run)
    raised(run, wall_seconds=3600)
    assert stage.drive() == "completed"
    is_sound(run)


def test_time_that_is_up_while_a_cap_is_asked_about_is_asked_for_then(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order", "order"), tool_calls=1, wall_seconds=60)
    assert stage.drive() == "paused"
    let_time_pass(run)
    time_is_up(run.id)  # someone else looked at that very moment
    assert len(asked(run)) == 1 and timers.ask_for_time() == 0
    raised(run, tool_calls=5)
    (wait,) = asked(run)
    assert budget_wait_text(wait)["resource"] == "time" and str(fresh(run).state) == "paused"
    assert timers.ask_for_time() == 0, "the open question asks for it"
    is_sound(run)
    overdue(run)
    assert str(fresh(run).state) == "cancelled"
    is_sound(run)


@pytest.mark.parametrize("situation", PAST_TIME[::-1])
def test_a_run_that_nobody_gives_time_ends(situations: Situations, stage: Stage, situation: str) -> None:
    """At once, or when its worker or the person settling its call has finished."""
    run = situations.make(situation)
    let_time_pass(run)
    overdue(run)
    is_sound(run)
    if fresh(run).owner is not None:
        assert head(run).is_cancel_requested
        failover.worker_died(stage.worker.id, "gone")
        Run.objects.filter(pk=run.pk, ready_at__isnull=False).update(ready_at=now())
    stage.settle(run)
    if str(fresh(run).state) == "waiting_human":
        stage.reconcile(run, "happened", {"ref": "seen", "amount": 1})
        stage.settle(run)
    assert str(fresh(run).state) == "cancelled"
    is_sound(run)


# --- requests with lost answers ---------------------------------------------------------------------------------------


def lost_request(stage: Stage, tools: Toolbox, **caps: Any) -> Run:
    priced()
    run = start(thinking(tools), **caps)
    stage.kill_at = [("CP4", "model")]
    worker = stage.hire(is_dead=True)
    assert stage.drive(worker) == "killed" and failover.worker_died(worker.id, "gone") == 1
    Run.objects.filter(pk=run.pk).update(ready_at=now())
    return run


def test_a_lost_request_is_debited_before_a_run_is_given_up(stage: Stage, tools: Toolbox) -> None:
    run = lost_request(stage, tools, wall_seconds=60)
    let_time_pass(run)
    overdue(run)
    assert str(fresh(run).state) == "running" and head(run).is_cancel_requested
    assert stage.drive() == "cancelled"
    (debit,) = events(run, e.BudgetDebited)
    assert debit.is_estimate and head(run).usd_micro == debit.usd_micro > 0
    is_sound(run)


@pytest.mark.parametrize("paused", [False, True])
def test_a_lost_request_is_debited_before_a_run_is_cancelled(stage: Stage, tools: Toolbox, paused: bool) -> None:
    run = lost_request(stage, tools)
    if paused:
        lifecycle.pause(run.id, by=OLGA, justification=WHY)
    lifecycle.cancel(run.id, by=OLGA, justification=WHY)
    assert stage.drive() == "cancelled" and len(events(run, e.BudgetDebited)) == 1
    is_sound(run)
