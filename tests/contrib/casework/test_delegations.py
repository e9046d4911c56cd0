"""Delegating one question to a named person: they decide only that one, and both share one vote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from approvals.brief import load_approval_detail
from approvals.models import Approval, Decision, Delegation, Seat
from approvals.services import AlreadyDecided
from durableagents.contrib.casework.delegations import NotHeld, delegate, take_back
from durableagents.contrib.notifications.models import Notice
from durableagents.contrib.notifications.recipients import find_recipients, read_subject
from ledger import events as e
from ledger.actors import Actor
from ledger.append import override
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput
from ledger.models import ActRecord, Head
from ledger.verification.runs import verify
from runs.models import Run
from runs.services import lifecycle
from tests.contrib.calendars.timing import away
from tests.integration.approvals.setup import WHY, asked, boss, buying, limited, say, somebody, sound
from tests.integration.runs.stage import Stage, at_once, events
from tests.rewriting import rewrite
from tests.world import Outside, Toolbox

pytestmark = pytest.mark.django_db
ROLE = "approver_finance"


@pytest.fixture
def dora() -> Actor:
    return somebody("dora", "operator")


def hand(case: Approval, by: Actor, to: str = "dora") -> Delegation:
    return delegate(case.id, to=to, justification=WHY, by=by)


def test_who_has_it_decides_just_this_one_in_the_others_place(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor, dora: Actor
) -> None:
    case, other = asked(stage, tools), None
    with pytest.raises(Forbidden):
        say(case, dora)
    row = hand(case, fiona)
    sound(case.run)
    (event,) = events(case.run, e.ApprovalDelegated)
    assert (event.principal, event.person, event.to, event.by) == (fiona.person, dora.person, "dora", "user:fiona")
    (notice,) = Notice.objects.filter(kind="delegated")
    assert [user.username for user in find_recipients(read_subject(notice))] == ["dora"]
    assert ActRecord.objects.get(action="delegate").justification == WHY
    say(case, dora)
    decision = Decision.objects.get()
    assert (decision.by, decision.standing["deputy_of"]) == (
        "user:dora",
        {"name": "fiona", "person": fiona.person, "delegation": row.pk},
    )
    assert {seat.person for seat in Seat.objects.all()} <= {fiona.person, dora.person}
    assert stage.drive() == "completed"
    sound(case.run)
    other = asked(stage, tools)
    with pytest.raises(Forbidden):
        say(other, dora)


def test_someone_who_handed_it_over_may_still_decide_it(
    stage: Stage, tools: Toolbox, fiona: Actor, dora: Actor
) -> None:
    case = asked(stage, tools)
    hand(case, fiona)
    say(case, fiona)
    with pytest.raises(AlreadyDecided):
        say(case, dora)
    assert stage.drive() == "completed"
    sound(case.run)


@pytest.mark.parametrize("who", ["fiona", "dora"])
def test_what_was_taken_back_gives_nothing(stage: Stage, tools: Toolbox, fiona: Actor, dora: Actor, who: str) -> None:
    case, by = asked(stage, tools), {"fiona": fiona, "dora": dora}
    row = hand(case, fiona)
    with pytest.raises(Forbidden):
        take_back(case.id, row.n, justification=WHY, by=somebody("olga", "operator"))
    take_back(case.id, row.n, justification=WHY, by=by[who])
    with pytest.raises(Forbidden, match="delegation was ended"):
        say(case, dora)
    with pytest.raises(NotHeld):
        take_back(case.id, row.n, justification=WHY, by=fiona)
    assert Approval.objects.get().state == "open"
    hand(case, fiona)  # again
    say(case, dora, "reject")
    sound(case.run)


def test_their_limits_are_the_principals_and_their_own(stage: Stage, tools: Toolbox, fiona: Actor, dora: Actor) -> None:
    case = asked(stage, tools)
    hand(case, fiona)
    limited(boss(), "100", person="fiona")
    with pytest.raises(Forbidden, match="limit of fiona"):
        say(case, dora)
    say(case, dora, "reject")


def test_one_who_lost_the_role_or_the_account_hands_on_nothing(
    stage: Stage, tools: Toolbox, fiona: Actor, dora: Actor
) -> None:
    case = asked(stage, tools)
    hand(case, fiona)
    User.objects.get(pk=fiona.person).groups.clear()
    with pytest.raises(Forbidden):
        say(case, dora)
    User.objects.get(pk=fiona.person).groups.add(Group.objects.get(name=ROLE))
    rewrite(User.objects.filter(pk=fiona.person), is_active=False)
    with pytest.raises(Forbidden):
        say(case, dora)
    rewrite(User.objects.filter(pk=fiona.person), is_active=True)
    rewrite(User.objects.filter(pk=dora.person), is_active=False)
    with pytest.raises(Forbidden):
        say(case, dora)


def test_only_who_decides_by_a_role_of_their_own_hands_it_over(
    stage: Stage, tools: Toolbox, fiona: Actor, dora: Actor
) -> None:
    """Not an operator, a deputy, the delegate or an ownerless key."""
    case, dan = asked(stage, tools), somebody("dan", "operator")
    away(fiona, "dan")
    hand(case, fiona)
    for other in (somebody("olga", "operator"), dan, dora, replace(fiona, person=None)):
        with pytest.raises(Forbidden):
            hand(case, replace(other, role=ROLE if other in (dan, dora) else other.role), to="olga")
    assert Delegation.objects.count() == 1


def test_a_row_that_was_written_past_us_gives_nobody_anything(
    stage: Stage, tools: Toolbox, fiona: Actor, dora: Actor
) -> None:
    case = asked(stage, tools)
    eve = somebody("eve", "operator")
    row = hand(case, fiona)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_delegation SET deputy = %s, \"to\" = 'eve'", [eve.person])
    with pytest.raises(Forbidden, match="not authentic"):
        say(case, eve)
    assert any(f"delegation {row.n}" in each for each in verify(case.run_id).problems)


@pytest.mark.django_db(transaction=True)
def test_taken_back_while_they_decide_one_comes_first(stage: Stage, tools: Toolbox, fiona: Actor, dora: Actor) -> None:
    for _ in range(2):
        case = asked(stage, tools)
        row = hand(case, fiona)

        def decides(case: Approval = case) -> str:
            say(case, dora)
            return "decided"

        def takes(case: Approval = case, n: int = row.n) -> str:
            take_back(case.id, n, justification=WHY, by=fiona)
            return "taken"

        found = at_once(decides, takes)
        won = [each for each in found if not isinstance(each, DurableAgentsError)]
        assert won in (["decided"], ["taken"]), found
        is_decided = Approval.objects.get(pk=case.pk).state == "approved"
        assert is_decided is (won == ["decided"])
        assert (Delegation.objects.get(pk=row.pk).ended_at is None) is is_decided
        sound(Run.objects.get(pk=case.run_id))
        if not is_decided:
            say(case, fiona)
        assert stage.drive() == "completed"


def test_who_took_part_in_the_run_is_neither_offered_nor_taken(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    starter, helper, free = (somebody(name, "integrator") for name in ("stan", "hedda", "freya"))
    run = lifecycle.start(buying(tools).graph_id, {}, by=starter)
    assert stage.drive() == "parked"
    override(Head.objects.get(run_id=run.pk), "retry", by=helper, justification=WHY, before={}, after={})
    case = Approval.objects.get(state="open")
    (panel,) = load_approval_detail(case.id, frozenset({ROLE}), fiona).panels_at["talk"]
    assert panel.value.talk.deputies == ["freya", "hedda"]
    for name, did in (("stan", "started this run"), ("hedda", "retried this run")):
        with pytest.raises(InvalidInput, match=f"^{name} can't decide this: they {did}.*Choose someone else[.]$"):
            hand(case, fiona, to=name)
    assert not Delegation.objects.exists()
    hand(case, fiona, to=free.name)
