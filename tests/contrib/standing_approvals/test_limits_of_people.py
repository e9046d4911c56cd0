"""Standing approvals with deputies, keys, revoked roles and odd amounts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import Approval
from durableagents import Context, End, Rejected
from durableagents.contrib.standing_approvals.models import StandingGrant, StandingUse
from durableagents.contrib.standing_approvals.services import revoke
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput
from tests.contrib.calendars.timing import away
from tests.contrib.standing_approvals.granting import allowed, asks, given, paid, paying, refused, state, swept
from tests.contrib.standing_approvals.test_standing_approvals import ROLE
from tests.integration.approvals.setup import WHY, boss, limited, say, somebody
from tests.integration.runs.stage import Stage, at_once, dump
from tests.rewriting import rewrite
from tests.world import Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def test_in_anybodys_place_nothing_is_allowed_again_and_nothing_answered(
    stage: Stage, tools: Toolbox, fiona: Actor
) -> None:
    """A deputy can't use a principal's higher limit for a grant; a grant ends when only the deputyship is left."""
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
    with pytest.raises(Forbidden, match="in their own role"):
        given(dear, fiona, sum="9000")
    assert dump() == before
    lena = replace(somebody("lena", "approver_legal"), role=ROLE)
    away(tessa, "lena")
    with pytest.raises(Forbidden, match="in their own role"):
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


def test_several_grants_of_the_same_go_no_further_than_one_may(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    """Five equal questions are open at once: each could use as much as the queue allows."""
    admin, frank = boss(), somebody("frank", ROLE)
    allowed(admin, times=3, sum="20000")
    agent = paying(tools)
    cases, other = [asks(stage, agent) for _ in range(4)], asks(stage, agent, "ink 5000")
    first, before = given(cases[0], fiona, times=2, sum="12000"), dump()
    with pytest.raises(
        InvalidInput, match=rf"more than the 1 left after .*standing approvals of the same call .{first.pk}."
    ):
        given(cases[1], fiona, times=2, sum="5000")
    with pytest.raises(InvalidInput, match=r"amount” is more than the \$8,000 left"):
        given(cases[1], fiona, times=1, sum="8000.01")
    assert dump() == before
    second = given(cases[1], fiona, times=1, sum="8000")
    with pytest.raises(InvalidInput, match="more than the 0 left"):
        given(cases[2], fiona, times=1, sum="1")
    given(other, fiona, times=3, sum="20000")  # about something else
    given(cases[2], frank, times=3, sum="20000")  # someone else's grant
    revoke(second.pk, justification=WHY, by=fiona, roles=[ROLE])
    given(cases[3], fiona, times=1, sum="8000")


def test_two_of_the_same_that_are_given_at_once_are_counted_together(
    stage: Stage, tools: Toolbox, fiona: Actor
) -> None:
    allowed(boss(), times=3)
    agent = paying(tools)
    cases = [asks(stage, agent) for _ in range(4)]
    found = at_once(*[lambda case=case: given(case, fiona, times=2) for case in cases])
    assert sorted(type(each).__name__ for each in found) == [*["InvalidInput"] * 3, "StandingGrant"]
    assert StandingGrant.objects.count() == 1 and Approval.objects.filter(state="approved").count() == 1


def test_what_was_rejected_in_this_run_is_a_persons_whatever_was_asked_between(
    stage: Stage, tools: Toolbox, fiona: Actor
) -> None:
    """A is rejected, its revision B approved, then A asked again: nothing links it to the first."""
    allowed(boss())
    agent = paying(tools, version="2.0.0")
    pay = agent.all_tools()[0]

    async def node(state: Notes, ctx: Context) -> End:
        for name in ("pen", "ink", "pen"):
            with suppress(Rejected):
                await ctx.call(pay, Item(name=name, amount=5000))
        return End("done")

    case = asks(stage, agent_of(node, tools=[pay], name="payer"))
    say(case, fiona, "reject")
    assert stage.drive() == "parked"
    between = Approval.objects.get(run=case.run, state="open")
    assert between.revision == 2
    grant = given(asks(stage, agent), fiona)
    say(between, fiona)
    while not Approval.objects.filter(run=case.run, state="open").exists():
        assert stage.drive() in ("parked", "completed")
    again = Approval.objects.get(run=case.run, state="open")
    assert (again.revision, again.same) == (1, grant.same)
    swept()
    assert state(case.run) == "open" and "was rejected, or expired, earlier" in str(refused(again, grant))
    assert paid(tools) == 2 and not StandingUse.objects.exists()


def test_nobody_uses_at_once_what_they_have_just_allowed(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    """Someone both decides there and configures queues: the earlier question is decided alone."""
    allowed(boss(), times=1)
    rewrite(User.objects.filter(pk=fiona.person), is_superuser=True, is_staff=True)
    agent = paying(tools)
    case, other = asks(stage, agent), asks(stage, agent)
    allowed(fiona, times=1000, days=366)
    before = dump()
    with pytest.raises(Forbidden, match="You changed the limits of standing approvals in finance_po after"):
        given(case, fiona, times=1)
    assert dump() == before
    given(other, somebody("frank", ROLE), times=1000, sum="1000000")
    say(case, fiona)
    assert state(case.run) == "approved"
