"""A zero with a sign, in a sum that somebody sets or an agent names: it is zero, and its row stays genuine."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command

from approvals.grants.models import StandingUse
from approvals.grants.terms import asked_of
from approvals.queue_models import Limit
from durableagents import Amount
from ledger.actors import Actor
from ledger.codes import number_text
from tests.integration.approvals.granting import allowed, asks, given, paying, state, swept
from tests.integration.approvals.setup import boss, limited, sound
from tests.integration.runs.stage import Stage
from tests.world import Item, Toolbox

pytestmark = pytest.mark.django_db


def nothing(_item: Item) -> Amount:
    """What an agent says that works out a difference."""
    return Amount(Decimal("-0.00"), "USD")


def verified(capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether `ledger verify` finds nothing."""
    call_command("ledger", "verify", "--all")
    return capsys.readouterr().out.endswith(" 0 problem(s)\n")


def test_of_an_agent(stage: Stage, tools: Toolbox, fiona: Actor, capsys: Any) -> None:
    """A call about it is let through by a standing grant, also where its plan was written with the sign."""
    allowed(boss())
    agent = paying(tools, amount=nothing)
    grant = given(asks(stage, agent), fiona, sum="-0.0")
    assert grant.is_genuine and not grant.most.is_signed()
    assert stage.drive() == "completed"
    case = asks(stage, agent)
    amount = asked_of(bytes(case.plan)).amount
    assert amount is not None and str(amount) == "$0" and b'"-0' not in bytes(case.plan)
    before = asked_of(bytes(case.plan).replace(b'"value":"0.00"', b'"value":"-0.00"')).amount
    assert b'"value":"0.00"' in bytes(case.plan) and str(before) == "$0"
    swept()
    assert state(case.run) == "approved" and stage.drive() == "completed"
    assert StandingUse.objects.get().is_genuine and verified(capsys)
    sound(case.run)


def test_a_row_is_sealed_over_what_the_database_keeps(db: None) -> None:
    """Whoever makes it, and the text of every other number is what it always was."""
    limited(boss(), "9000")
    row = Limit.objects.get()
    row.most = Decimal("-0.000")
    row.seal()
    row.save()
    assert Limit.objects.get().is_genuine
    for text in ("0", "0.000001", "-0.000001", "-12.5", "250.00", "1E+15", "999999999999999.999999", "1000"):
        assert number_text(Decimal(text)) == f"{Decimal(text):.6f}"
    assert number_text(None) is None and number_text(Decimal("-0.00")) == "0.000000"
