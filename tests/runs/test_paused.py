"""What the page of a paused run says of its going on."""

from __future__ import annotations

from typing import Any

import pytest

from durableagents import Context, End
from ledger.models import Head
from runs.console.run_page import gather
from runs.console.tables.looks import why
from runs.models import Run
from tests.runs.situations import Situations, act
from tests.runs.stage import Stage, fresh, in_thread, waiting
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
AT_ONCE = "a worker takes it at once"


def said_of(run: Run) -> str:
    return str(why(gather(run.id)))


def test_nothing_has_come_for_a_run_that_its_worker_paused_in_the_middle(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    """One of its branches waits for a decision that nobody has made."""

    async def node(state: Notes, ctx: Context) -> End:
        gated, seen = ctx.call(tools.pay, Item(name="po", amount=5000)), ctx.call(tools.look, Item(name="x"))
        return End([each.ref for each in await ctx.gather(gated, seen)])

    def pause(call: Any) -> None:
        in_thread(lambda: act("pause", run))

    outside.trouble("look", pause)
    run = stage.start(agent_of(node, tools=tools.all()))
    assert stage.drive() == "paused" and [w.kind for w in waiting(run)] == ["approval"]
    assert "has come" not in said_of(run) and AT_ONCE in said_of(run)
    act("resume", run)
    assert stage.drive() == "parked" and len(outside.seen("look")) == 1


def test_a_run_that_still_waits_is_not_said_to_go_on(stage: Stage, tools: Toolbox) -> None:
    run = Situations(stage, tools).make("paused_at_gate")
    assert AT_ONCE not in said_of(run)
    act("resume", run)
    assert str(fresh(run).state) == "waiting_human" and stage.drive() == "idle"


def test_a_run_that_a_verdict_fails_keeps_no_wish_to_pause(stage: Stage, tools: Toolbox) -> None:
    """The worker that was to pause died when it had put the doubt on record: its wish is left, and the run waits."""
    run = Situations(stage, tools).make("unknown")
    Head.objects.filter(run_id=run.id).update(is_pause_requested=True)
    act("fail", run)
    assert str(fresh(run).state) == "failed" and not Head.objects.get(run_id=run.id).is_pause_requested
