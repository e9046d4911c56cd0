"""Forged rows of decisions, queues and records: none counts, and verification names each."""

from __future__ import annotations

import pytest

from approvals.services import decide
from durableagents import Context, End
from durableagents.contrib.change_control.models import FourEyes
from durableagents.contrib.releases.models import Ramp
from ledger.append import acted
from ledger.verification.registers import verify_registers
from runs.models import Run
from runs.services import lifecycle
from tests.integration.approvals.test_forged_decisions import OPS, act, change, said_so
from tests.integration.runs.stage import Stage
from tests.world import FIONA, OLGA, SHOP, Item, Notes, Toolbox, agent_of

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


@pytest.fixture
def busy(stage: Stage, tools: Toolbox) -> Run:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.pay, Item(name="po", amount=5000))).ref)

    run = lifecycle.start(agent_of(node, tools=tools.all()).graph_id, {}, by=SHOP)
    stage.drive()
    lifecycle.pause(run.pk, by=OLGA, justification="month end")
    lifecycle.resume(run.pk, by=OLGA, justification="month began")
    asked = run.approvals.get()
    decide(asked.id, verdict="approve", plan_hash=asked.plan_hash, justification="as quoted", by=FIONA)
    acted("declare_dead", by=OPS, subject="gone.example", justification="its power supply burnt")
    return run


@said_so
def test_lists_that_go_by_acts_bear_acts_that_say_no_state(busy: Run, said: str) -> None:
    """Rows define what is in force; a stray act is someone's forgery."""
    FourEyes.objects.create(n=1, families=["policies"], set_by="user:x", at="2026-11-26T00:00Z")
    ramp = Ramp.objects.create(
        agent="a",
        from_version="1",
        to_version="2",
        bounds={},
        least=1,
        share=5,
        set_by="user:x",
        made_at="2026-11-26T00:00Z",
    )
    proposed = change(said)
    for action, subject in (("four_eyes", "x"), ("rule_change", f"change {proposed}"), ("ramp", f"ramp {ramp.pk}")):
        act(said, action, subject=subject)
    found = {each.name: each.problems for each in verify_registers()}
    assert any(each.startswith("two-person rule '1'") for each in found["protected rows"])
    assert any(each.startswith(f"ramp {ramp.pk}") for each in found["releases"])
    assert not any("interpreted" in each for problems in found.values() for each in problems)
