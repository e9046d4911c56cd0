"""Allowing the same again, beside what else there is: deputies, keys, roles that were taken, odd amounts."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from django.contrib.auth.models import Group, User

from approvals.granting.listed import one, page
from approvals.grants.models import StandingUse
from approvals.models import Decision
from durableagents import Amount
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, NotFound
from tests.approvals.granting import allowed, asks, given, paying, state, swept
from tests.approvals.setup import away, boss, limited, somebody, sound
from tests.approvals.test_granting import ROLE
from tests.runs.stage import Stage, dump
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def test_in_anybodys_place_nothing_is_allowed_again_and_nothing_answered(
    stage: Stage, tools: Toolbox, fiona: Actor
) -> None:
    """Who stands in for somebody with a higher limit gives no grant by it; and one that they gave is no longer theirs
    once only the place is left."""
    admin, tessa = boss(), somebody("tessa", ROLE)
    allowed(admin)
    limited(admin, "10000", person="fiona")
    away(tessa, "fiona")
    agent = paying(tools)
    case, before = asks(stage, agent), dump()
    with pytest.raises(InvalidInput, match="than you may approve at once"):
        given(case, fiona, sum="20000")
    assert dump() == before
    dear, before = asks(stage, agent, "gold 12000"), dump()
    with pytest.raises(Forbidden, match="in their own right"):
        given(dear, fiona, sum="9000")
    assert dump() == before
    lena = replace(somebody("lena", "approver_legal"), role=ROLE)
    away(tessa, "lena")
    with pytest.raises(Forbidden, match="in their own right"):
        given(dear, lena, sum="9000")
    given(case, fiona, sum="9000")
    limited(admin, "4000", person="fiona")
    beyond = asks(stage, agent)
    swept()
    assert state(beyond.run) == "open", "within the limit of whom they stand in for, and above their own"
    limited(admin, "10000", person="fiona")
    User.objects.get(username="fiona").groups.clear()
    swept()
    assert state(beyond.run) == "open" and not StandingUse.objects.exists()
    User.objects.get(username="fiona").groups.set(Group.objects.filter(name="approver_legal"))
    swept()
    assert state(beyond.run) == "open" and not StandingUse.objects.exists(), "nor with a role of another queue"


def test_one_that_was_given_with_a_key_is_used_and_verified(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    agent = paying(tools)
    key = replace(fiona, kind="key", name="fionas-laptop", auth="api_key")
    first = asks(stage, agent)
    given(first, key)
    case = asks(stage, agent)
    swept()
    assert state(case.run) == "approved"
    sound(first.run, case.run)
    row = Decision.objects.get(approval=case)
    assert (row.by, row.person) == ("user:fiona", fiona.person)


def test_an_amount_that_its_rows_could_not_hold_is_asked_about(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    fine = lambda args: Amount(Decimal("0.1234567"), "USD")  # noqa: E731
    case = asks(stage, paying(tools, amount=fine))
    with pytest.raises(InvalidInput, match="more than six decimals"):
        given(case, fiona)


def test_whoever_gave_it_sees_it_without_the_role_too(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    grant = given(asks(stage, paying(tools)), fiona)
    user = User.objects.get(username="fiona")
    user.groups.clear()
    assert one(grant.pk, user).may_end and [shown.row.pk for shown in page(user)] == [grant.pk]
    with pytest.raises(NotFound):
        one(grant.pk, User.objects.create(username="somebody-else"))
