"""test_retry"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from approvals.models import Approval
from durableagents import Context, End
from runs.workers import timers
from tests.contrib.halts.halting import halt, lift
from tests.contrib.notifications.test_retry import about_time
from tests.integration.runs.aging import all_earlier
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, mood, outside, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Mood, Stage, now, waiting
from tests.integration.runs.test_retry import breaks
from tests.tampering import tamper
from tests.world import Done, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.every(3)


def halted(by: timedelta) -> None:
    it = halt("all")
    lift(it)
    tamper("UPDATE runs_halt SET at = at - %s WHERE halt = %s AND n = 0", by, it.halt)


@pytest.mark.parametrize("is_halted", [False, True], ids=["", "beside a halt"])
@pytest.mark.parametrize("asks", ["approval", "input", "signal"])
def test_retry_keeps_the_time_left(stage: Stage, tools: Toolbox, mood: Mood, asks: str, is_halted: bool) -> None:
    mood.is_bad, days = False, timedelta(days=2)
    assert tools.pay.gate is not None
    pay = replace(tools.pay, gate=replace(tools.pay.gate, within=days))

    async def node(state: Notes, ctx: Context) -> End:
        if mood.is_bad:
            raise KeyError("a deployment gone wrong")
        match asks:
            case "approval":
                await ctx.call(pay, Item(name="po", amount=5000))
            case "input":
                await ctx.ask("finance_po", title="Which account?", schema=Done, within=days)
            case _:
                await ctx.signal("paid", within=days)
        return End("well")

    run = stage.start(agent_of(node, tools=[pay]))
    assert stage.drive() == "parked"
    all_earlier(run.id, timedelta(hours=12))
    breaks(stage, run, mood)
    all_earlier(run.id, timedelta(days=9))
    if is_halted:
        halted(timedelta(days=8))
    mood.is_bad = False
    act("retry", run)
    assert stage.drive() == "parked"
    timers.sweep()
    (wait,) = waiting(run)
    left = wait.deadline - now()
    assert wait.kind == asks and abs(left - timedelta(hours=36)) < timedelta(minutes=1) and about_time(run) == []
    if asks == "approval":
        assert Approval.objects.get(run=run).deadline == wait.deadline
        stage.decide(run)
        assert stage.drive() == "completed" and about_time(run) == []
    run.waits.filter(pk=wait.pk).update(deadline=wait.deadline + timedelta(days=1))
    assert len(about_time(run)) == 1, "and no more than that"
    if asks != "approval":
        run.waits.filter(pk=wait.pk).update(deadline=wait.deadline)
        all_earlier(run.id, timedelta(hours=37))
        timers.sweep()
        assert waiting(run) == [], "nor once more when it comes due"
