"""Standing approvals of calls whose amounts are floats."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command

from durableagents import Amount
from durableagents.contrib.standing_approvals.models import StandingUse
from durableagents.contrib.standing_approvals.terms import read_same_call
from ledger.actors import Actor
from tests.contrib.standing_approvals.granting import allowed, asks, given, paying, state, swept
from tests.integration.approvals.setup import boss, sound
from tests.integration.runs.stage import Stage
from tests.world import Item, Toolbox

pytestmark = pytest.mark.django_db


def nothing(_item: Item) -> Amount:
    """The amount of an agent that computes a difference."""
    return Amount(Decimal("-0.00"), "USD")


def verified(capsys: pytest.CaptureFixture[str]) -> bool:
    call_command("ledger", "verify", "--all")
    return capsys.readouterr().out.endswith(" 0 problem(s)\n")


def test_of_an_agent(stage: Stage, tools: Toolbox, fiona: Actor, capsys: Any) -> None:
    """A standing approval answers a call about it, also where its plan was written with the sign."""
    allowed(boss())
    agent = paying(tools, amount=nothing)
    grant = given(asks(stage, agent), fiona, sum="-0.0")
    assert grant.is_authentic and not grant.most.is_signed()
    assert stage.drive() == "completed"
    case = asks(stage, agent)
    amount = read_same_call(bytes(case.plan)).amount
    assert amount is not None and str(amount) == "$0" and b'"-0' not in bytes(case.plan)
    before = read_same_call(bytes(case.plan).replace(b'"value":"0.00"', b'"value":"-0.00"')).amount
    assert b'"value":"0.00"' in bytes(case.plan) and str(before) == "$0"
    swept()
    assert state(case.run) == "approved" and stage.drive() == "completed"
    assert StandingUse.objects.get().is_authentic and verified(capsys)
    sound(case.run)
