"""A run with a standing approval, for tests/integration/runs/test_verification.py."""

from __future__ import annotations

from dataclasses import replace

from approvals.models import Approval
from durableagents import Context, End
from runs.models import Run
from tests.contrib.standing_approvals.granting import allowed, given, swept
from tests.integration.approvals.setup import boss, somebody
from tests.integration.runs.stage import Stage
from tests.world import Item, Notes, Toolbox, agent_of


def allowed_again(stage: Stage, tools: Toolbox) -> Run:
    assert tools.pay.gate is not None
    allowed(boss())
    pay = replace(tools.pay, gate=replace(tools.pay.gate, amount="amount USD", same=["name"]))

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(pay, Item(name="pen", amount=5000))
        return End((await ctx.call(pay, Item(name="pen", amount=6000))).ref)

    run = stage.start(agent_of(node, tools=[pay]))
    assert stage.drive() == "parked"
    given(Approval.objects.get(run=run), somebody("gina", "approver_finance"), times=5)
    assert stage.drive() == "parked"
    swept()
    assert stage.drive() == "completed"
    return run


make_run = allowed_again
