"""Numbers that the canonical form writes as others than they were: a float that is whole, from 2^53 up to 10^21, stands
there as an integer that no canonical form takes; jsonb makes integers of larger ones too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from approvals.brief import plan_of
from approvals.services import reads_as_hashed
from durableagents import Context, End, Evidence
from ledger.actors import Actor
from runs.engine.agents import Agent
from tests.integration.approvals.setup import say, sound
from tests.integration.approvals.test_amending import asked, change
from tests.integration.runs.stage import Stage
from tests.world import Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
NUMBERS = [2.0**53, -(2.0**53), 1.7e18, 9.9e20, 1e21, 1e22, 1e23, 1.7976931348623157e308, 5e-324, -0.0, 2.5]


class Weighed(Item):
    weight: float


def weighing(tools: Toolbox, weight: float) -> Agent:
    assert tools.pay.gate is not None
    gate = replace(tools.pay.gate, editable=["weight"])
    pay = replace(tools.pay, input=Weighed, gate=gate)

    async def node(state: Notes, ctx: Context) -> End:
        shown = [Evidence("scales", "here", {"measured": [weight]})]
        done = await ctx.call(pay, Weighed(name="po", amount=5000, weight=weight), evidence=shown)
        return End(done.amount)

    return agent_of(node, tools=[pay])


@pytest.mark.parametrize("weight", NUMBERS)
@pytest.mark.parametrize(("verdict", "end"), [("approve", "completed"), ("reject", "failed")])
def test_any_float_can_be_decided_about(
    stage: Stage, tools: Toolbox, fiona: Actor, weight: float, verdict: str, end: str
) -> None:
    first = asked(stage, weighing(tools, weight))
    assert reads_as_hashed(first) and plan_of(first)["arguments"]["weight"] == weight
    sound(first.run)
    say(first, fiona, verdict)
    assert stage.drive() == end
    sound(first.run)


@pytest.mark.parametrize("weight", NUMBERS)
def test_any_float_can_be_put_in_the_place_of_another(
    stage: Stage, tools: Toolbox, fiona: Actor, weight: float
) -> None:
    first = asked(stage, weighing(tools, 1.25e18))
    assert change(first, fiona, weight=weight).approval.state == "approved"
    assert stage.drive() == "completed"
    sound(first.run)
