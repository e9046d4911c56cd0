"""Approving with changes: the new question, the arguments that may change, and other rules that apply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from approvals.cases.amending import amend
from approvals.models import Approval
from durableagents import Context, End, Gate, PolicyDenied
from ledger.actors import Actor
from ledger.errors import InvalidInput
from tests.contrib.calendars.test_amending import LEGAL
from tests.contrib.policies.test_policies import put as put_policy
from tests.contrib.step_up.test_stepup import plan
from tests.integration.approvals.setup import boss, somebody, sound
from tests.integration.approvals.test_amending import asked, change, paying, say, sent
from tests.integration.runs.stage import Stage, output
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def test_policies_judge_the_changed_call(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor) -> None:
    agent, admin, lena = paying(tools, 1000), boss(), somebody("lena", LEGAL)
    put_policy(admin, tool="pay", condition="args.amount >= 3000")
    first = asked(stage, agent)
    change(first, fiona, amount=4000)
    assert stage.drive() == "parked" and outside.requests == []
    demanded = Approval.objects.get(state="open")
    assert demanded.queue == "legal" and plan(demanded)["arguments"]["amount"] == 4000
    by = replace(lena, role=LEGAL)
    with pytest.raises(InvalidInput, match="names no field"):
        amend(demanded.id, plan_hash=demanded.plan_hash, arguments={"amount": 1}, justification="so be it", by=by)
    say(lena, role=LEGAL)
    assert stage.drive() == "completed" and sent(outside) == [4000]
    sound(first.run)


def test_a_forbidden_change_sends_nothing(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor) -> None:
    pay = replace(tools.pay, gate=Gate("finance_po", "any", editable=["amount"]))

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(pay, Item(name="po", amount=1000))
        except PolicyDenied as no:
            return End(no.policy)
        return End("paid")

    agent = agent_of(node, tools=[pay])
    put_policy(boss(), effect="deny", tool="pay", condition="args.amount >= 3000")
    first = asked(stage, agent)
    change(first, fiona, amount=4000)
    assert stage.drive() == "completed" and output(first.run) == "orders" and outside.requests == []
    sound(first.run)
