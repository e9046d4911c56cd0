from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Context, End
from ledger import events as e
from runs.models import Incident, Run, Wait
from runs.services import lifecycle
from runs.services.late_results import lost_worker, record_late_result
from runs.services.signals import signal
from runs.workers import failover, timers
from tests.integration.runs.stage import Stage, calling, events, fresh, head, now, output, waiting
from tests.integration.runs.test_late import comes_back
from tests.integration.runs.test_steering import check_form
from tests.world import OLGA, SHOP, Item, Notes, Outside, Toolbox, agent_of


def both(tools: Toolbox) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        went = await ctx.gather(ctx.signal("go"), ctx.sleep(3600))
        return End([went[0], (await ctx.call(tools.mail, Item(name="a"))).ref])

    return agent_of(node, tools=tools.all())


def rings(run: Run) -> None:
    Wait.objects.filter(run=run, kind="timer").update(deadline=now() - timedelta(seconds=1))
    timers.sweep()


def signals(run: Run) -> None:
    signal(run.id, "go", {"yes": True}, by=SHOP)


def stopped(stage: Stage, run: Run) -> None:
    """Let the engine fail on the run while a worker has it, with both waits open."""
    assert stage.drive() == "parked"
    assert {w.kind for w in waiting(run)} == {"signal", "timer"}
    Run.objects.filter(pk=run.pk).update(state="running", ready_at=now())
    stage.claim()
    assert failover.engine_failed(run.id, stage.worker.id, "it broke")
    assert str(fresh(run).state) == "waiting_human"


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("comes", [signals, rings])
def test_what_comes_meanwhile_is_kept_and_drives_nothing(
    stage: Stage, tools: Toolbox, outside: Outside, comes: Callable[[Run], None], is_paused: bool
) -> None:
    run = stage.start(both(tools))
    stopped(stage, run)
    if is_paused:
        lifecycle.pause(run.id, by=OLGA, justification="let us see")
    comes(run)
    if is_paused:
        lifecycle.resume(run.id, by=OLGA, justification="seen")
    assert (str(fresh(run).state), fresh(run).ready_at) == ("waiting_human", None)
    assert stage.drive() == "idle"
    lifecycle.retry(run.id, by=OLGA, justification="looked at it")
    assert stage.drive() == "parked"
    (rings if comes is signals else signals)(run)
    assert stage.drive() == "completed" and output(run) == [{"yes": True}, "mail:a"]
    check_form(run)


def test_a_late_answer_does_not_let_a_poison_run_go_on(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail")
    stage.claim()
    assert failover.engine_failed(run.id, stage.worker.id, "it broke")
    (late,) = stage.late
    assert record_late_result(late, lost_worker(worker.id)) is True
    assert [w.kind for w in waiting(run)] == ["operator"] and stage.drive() == "idle"
    lifecycle.retry(run.id, by=OLGA, justification="looked at it")
    assert stage.drive() == "completed" and output(run) == "mail:a"


def test_a_stopped_run_with_a_call_of_unknown_outcome_can_still_be_cancelled(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(calling(tools, "mail"))
    stage.kill_at = [("CP4", "mail")]
    assert stage.drive() == "killed"
    failover.worker_died(stage.worker.id, "gone", Incident.Cause.PROOF)
    stage.worker = stage.hire()
    stage.claim()
    assert failover.engine_failed(run.id, stage.worker.id, "it broke")
    lifecycle.cancel(run.id, by=OLGA, justification="no longer wanted")
    assert stage.drive() == "parked" and "reconcile" in {w.kind for w in waiting(run)}
    stage.reconcile(run, "happened", {"ref": "mail:a"})
    assert stage.drive() == "cancelled" and str(fresh(run).state) == "cancelled"
    assert head(run).is_cancel_requested is False and len(events(run, e.RunCancelled)) == 1
