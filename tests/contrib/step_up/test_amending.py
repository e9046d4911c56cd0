"""Approving with changes: the new question, the arguments that may change, and other rules that apply."""

from __future__ import annotations

from decimal import Decimal

import pytest

from approvals.models import Approval
from durableagents import Gate
from durableagents import Stage as Then
from ledger.actors import Actor
from ledger.errors import InvalidInput
from tests.contrib.calendars.test_amending import LEGAL
from tests.contrib.step_up.test_stepup import fresh, plan, rule
from tests.integration.approvals.setup import somebody, sound
from tests.integration.approvals.test_amending import asked, change, paying, say, sent, staged
from tests.integration.runs.stage import Stage
from tests.world import Outside, Toolbox

pytestmark = pytest.mark.django_db


def test_a_change_at_a_later_stage_asks_all_again(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor) -> None:
    lena = somebody("lena", LEGAL)
    first = asked(stage, staged(tools, Gate("legal", "large sums", then=[Then("finance_po")])))
    say(lena, role=LEGAL)
    assert stage.drive() == "parked"
    second = Approval.objects.get(state="open")
    done = change(second, fiona, amount=2500)
    assert done.approval.state == "open" and "decides in legal" in done.why_open
    renewed = Approval.objects.get(state="open")
    assert (renewed.queue, renewed.case_id, renewed.revision) == ("legal", renewed.id, second.revision + 1)
    assert "passed" not in plan(renewed) and plan(renewed)["stage"] == 1
    assert stage.drive() != "completed" and outside.requests == []
    say(lena, role=LEGAL)
    assert stage.drive() == "parked" and outside.requests == []
    say(fiona)
    assert stage.drive() == "completed" and sent(outside) == [2500]
    sound(first.run)


def test_above_a_threshold_a_change_needs_a_proven_yes(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    first = asked(stage, paying(tools, 1500, declared="amount USD"))
    rule(minutes=5, type_amount=True, above=Decimal(2000))
    done = change(first, fiona, amount=4000)
    assert done.approval.state == "open" and "Type the amount" in done.why_open
    with pytest.raises(InvalidInput):
        say(fresh(fiona), typed={"amount": "1500"})
    say(fresh(fiona), typed={"amount": "4000"})
    assert stage.drive() == "completed" and sent(outside) == [4000]
    sound(first.run)
