"""Claims on a case: limited in time and number, and no obstacle to others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals.models import Approval, Decision
from approvals.queues import acts as queues
from approvals.services import AlreadyDecided, AlreadyVoted
from durableagents.contrib.calendars import deputies
from durableagents.contrib.casework.claims import Claimed, NoClaim, claim, release
from durableagents.contrib.casework.delegations import delegate, take_back
from durableagents.contrib.casework.models import Claim
from durableagents.contrib.casework.queries import active_claims
from ledger.actors import Actor
from ledger.errors import Forbidden, NotFound
from tests.contrib.calendars.timing import away
from tests.integration.approvals.setup import WHY, asked, boss, limited, one_after_the_other, say, somebody
from tests.integration.approvals.test_stages import LEGAL_THEN_TWO, TWO, now
from tests.integration.approvals.test_stages import buying as staged
from tests.integration.approvals.test_stages import say as vote
from tests.integration.runs.stage import Stage, at_once, events, problems
from tests.rewriting import rewrite
from tests.tiers import many
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
MANY = many(64, 16)
FINANCE, LEGAL = "approver_finance", "approver_legal"


def on(by: Actor, approval: Approval, role: str = FINANCE, **more: Any) -> Claim:
    return claim(approval.id, by=replace(by, role=role), **more)


def who(approval: Approval) -> list[str]:
    return [one.who for one in active_claims([approval.pk])[approval.pk]]


def lapse(row: Claim) -> None:
    Claim.objects.filter(pk=row.pk).update(until=row.at + timedelta(microseconds=1))


def ended(row: Claim) -> tuple[str, str]:
    row.refresh_from_db()
    return row.why, row.ended_by


# --- one person -------------------------------------------------------------------------------------------------------


def test_who_is_on_it_is_on_it_for_ten_minutes_and_the_next_one_is_told(stage: Stage, tools: Toolbox) -> None:
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    before = len(events(approval.run))
    row = on(fiona, approval)
    assert (row.person, row.by, row.role) == (fiona.person, "user:fiona", FINANCE)
    assert row.until - row.at == timedelta(minutes=10) and abs(row.at - timezone.now()) < timedelta(minutes=1)
    with pytest.raises(Claimed) as refused:
        on(frank, approval)
    assert "user:fiona has claimed it until" in refused.value.detail and f"{row.until:%H:%M:%S}" in refused.value.detail
    assert refused.value.extra["claims"] == [{"id": row.id, "by": "user:fiona", "until": row.until.isoformat()}]
    assert who(approval) == ["fiona"] and Claim.objects.count() == 1
    assert len(events(approval.run)) == before and problems(approval.run) == [], "it binds nothing"


def test_it_is_let_go_once(stage: Stage, tools: Toolbox) -> None:
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    row = on(fiona, approval)
    with pytest.raises(NoClaim):
        release(approval.id, by=frank)
    release(approval.id, by=fiona)
    assert ended(row) == ("let go", "user:fiona") and who(approval) == []
    with pytest.raises(NoClaim):
        release(approval.id, by=fiona)
    assert on(frank, approval).by == "user:frank"


def test_it_lapses_by_itself_and_nobody_has_to_write_that(stage: Stage, tools: Toolbox) -> None:
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    row = on(fiona, approval)
    lapse(row)
    assert who(approval) == []
    assert on(frank, approval).by == "user:frank" and who(approval) == ["frank"]
    with pytest.raises(NoClaim):
        release(approval.id, by=fiona)
    with pytest.raises(Claimed):
        on(fiona, approval)
    release(approval.id, by=frank)
    second = on(fiona, approval)
    assert second.pk != row.pk and ended(row) == ("lapsed", "") and row.ended_at == row.until, "two spells, two rows"


# --- taken over -------------------------------------------------------------------------------------------------------


def test_somebody_else_takes_it_over_and_the_first_is_told(stage: Stage, tools: Toolbox) -> None:
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    row = on(fiona, approval)
    on(frank, approval, take_over=row.pk)
    assert who(approval) == ["frank"] and ended(row) == ("taken over", "user:frank")
    with pytest.raises(NoClaim, match="user:frank took it over"):
        release(approval.id, by=fiona)


# --- no obstacle to others --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_claim_keeps_nobody_from_deciding_and_ends_with_the_case(stage: Stage, tools: Toolbox, verdict: str) -> None:
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    row = on(fiona, approval)
    say(approval, frank, verdict)
    assert ended(row) == ("closed", "") and who(approval) == []
    with pytest.raises(AlreadyDecided, match="by user:frank"):
        on(fiona, approval)
    with pytest.raises(NoClaim):
        release(approval.id, by=fiona)
    assert problems(approval.run) == []


def test_a_question_that_is_put_again_begins_with_nobody_on_it(stage: Stage, tools: Toolbox) -> None:
    """A retry puts its failed run's questions again."""
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    row = on(fiona, approval)
    again = Approval.objects.get()
    again.withdraw()
    again.save(update_fields=["state"])
    again.reopen()
    again.save(update_fields=["state"])
    assert ended(row) == ("closed", "") and who(approval) == [] and on(frank, approval).by == "user:frank"


# --- permissions ------------------------------------------------------------------------------------------------------


def test_who_may_not_decide_it_is_not_on_it(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, tools)
    lena, asker = somebody("lena", LEGAL), somebody("fiona", FINANCE)
    for by, role in ((lena, LEGAL), (lena, FINANCE), (asker, "operator"), (Actor("os", "root", auth="shell"), FINANCE)):
        with pytest.raises(Forbidden):
            on(by, approval, role)
    queues.close("finance_po", by=boss(), justification=WHY)
    with pytest.raises(Forbidden):
        on(asker, approval)
    assert not Claim.objects.exists()
    with pytest.raises(NotFound):
        claim(approval.run_id, by=asker)


def test_who_has_took_part_in_it_is_not_on_it(stage: Stage, tools: Toolbox) -> None:
    fiona, approval = somebody("fiona", FINANCE, is_superuser=True, is_staff=True), asked(stage, tools)
    limited(fiona, "1000000", person="fiona")
    with pytest.raises(Forbidden):
        on(fiona, approval)


def test_a_deputy_is_on_it_until_their_time_is_over(stage: Stage, tools: Toolbox) -> None:
    fiona, dora, approval = somebody("fiona", FINANCE), somebody("dora", "operator"), asked(stage, tools)
    deputy = away(fiona, "dora")
    on(dora, approval)
    assert who(approval) == ["dora"]
    deputies.end_deputyship(deputy.pk, by=fiona, justification="back again")
    assert who(approval) == [] and on(fiona, approval).by == "user:fiona"


def test_who_was_handed_a_case_is_on_it_until_it_is_taken_back(stage: Stage, tools: Toolbox) -> None:
    fiona, dora, approval = somebody("fiona", FINANCE), somebody("dora", "operator"), asked(stage, tools)
    frank = somebody("frank", FINANCE)
    delegate(approval.id, to="dora", justification=WHY, by=fiona)
    on(dora, approval)
    assert who(approval) == ["dora"]
    with pytest.raises(Claimed, match="user:dora has claimed it"):
        on(frank, approval)
    take_back(approval.id, 0, justification=WHY, by=fiona)
    assert who(approval) == [] and on(frank, approval).by == "user:frank"


@pytest.mark.parametrize("how", ["closed", "role"])
def test_who_could_not_decide_any_more_is_on_nothing_and_takes_up_no_room(
    stage: Stage, tools: Toolbox, how: str
) -> None:
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    row = on(fiona, approval)
    user = User.objects.get(pk=fiona.person)
    if how == "closed":
        user.is_active = False
        user.save()
    else:
        user.groups.clear()
    assert who(approval) == []
    with pytest.raises(Forbidden):
        on(fiona, approval)
    assert on(frank, approval).by == "user:frank"
    user.groups.set([Group.objects.get(name=FINANCE)])
    rewrite(User.objects.filter(pk=fiona.person), is_active=True)
    assert who(approval) == ["frank"] and ended(row) == ("lapsed", ""), "nor by being able to again"
    with pytest.raises(NoClaim):
        release(approval.id, by=fiona)


def test_a_role_that_is_taken_while_somebody_claims_is_taken_wholly_before_or_after(
    stage: Stage, tools: Toolbox
) -> None:
    fiona, approval = somebody("fiona", FINANCE), asked(stage, tools)
    answer = one_after_the_other(User.objects.get(pk=fiona.person).groups.clear, lambda: on(fiona, approval))
    assert isinstance(answer, Forbidden) and not Claim.objects.exists()


# --- several people ---------------------------------------------------------------------------------------------------


def test_as_many_are_on_it_as_words_are_missing(stage: Stage, tools: Toolbox) -> None:
    people = [somebody(name, FINANCE) for name in ("fiona", "frank", "freya", "felix")]
    stage.start(staged(tools, TWO))
    stage.drive()
    approval = now()
    first, second = on(people[0], approval), on(people[1], approval)
    with pytest.raises(Claimed) as refused:
        on(people[2], approval)
    assert "user:fiona" in refused.value.detail and "user:frank" in refused.value.detail
    vote(people[0])
    assert ended(first) == ("said", "user:fiona") and who(approval) == ["frank"], "who has had their say is done"
    with pytest.raises(AlreadyVoted):
        on(people[0], approval)
    with pytest.raises(Claimed):
        on(people[2], approval)  # one more approval is needed, and frank claims it
    on(people[2], approval, take_over=second.pk)
    assert who(approval) == ["freya"]
    vote(people[3])
    assert who(approval) == [] and Approval.objects.get(pk=approval.pk).state == "approved"


def test_the_next_stage_begins_with_nobody_on_it(stage: Stage, tools: Toolbox) -> None:
    lena, fiona, frank = somebody("lena", LEGAL, FINANCE), somebody("fiona", FINANCE), somebody("frank", FINANCE)
    stage.start(staged(tools, LEGAL_THEN_TWO))
    stage.drive()
    first = now()
    row = on(lena, first, LEGAL)
    vote(lena)
    assert ended(row) == ("closed", "")
    stage.drive()
    second = now()
    assert second.pk != first.pk and who(second) == []
    on(fiona, second)
    on(frank, second)
    with pytest.raises(AlreadyVoted):
        on(lena, second, FINANCE)
    with pytest.raises(AlreadyDecided):
        on(fiona, first, LEGAL)


# --- many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [1, 2])
def test_of_many_at_once_as_many_are_on_it_as_there_is_room_for(stage: Stage, tools: Toolbox, room: int) -> None:
    people = [somebody(f"f{n}", FINANCE) for n in range(MANY)]
    if room == 1:
        approval = asked(stage, tools)
    else:
        stage.start(staged(tools, TWO))
        stage.drive()
        approval = now()
    answers: list[Any] = []
    for start in range(0, MANY, 16):  # as many as there are connections
        answers += at_once(*(lambda by=by: on(by, approval) for by in people[start : start + 16]))
    won = [one for one in answers if isinstance(one, Claim)]
    lost = [one for one in answers if isinstance(one, Claimed)]
    assert len(won) == room and len(lost) == MANY - room
    assert Claim.objects.filter(ended_at__isnull=True).count() == room
    items = {each["by"] for one in lost for each in one.extra["claims"]}
    assert items == {one.by for one in won}


def test_one_person_twice_at_once_has_one_claim(stage: Stage, tools: Toolbox) -> None:
    fiona, approval = somebody("fiona", FINANCE), asked(stage, tools)
    answers = at_once(*(lambda: on(fiona, approval) for _ in range(8)))
    assert {one.pk for one in answers} == {Claim.objects.get().pk}


def test_a_claim_and_a_decision_at_once_leave_nobody_on_what_is_over(stage: Stage, tools: Toolbox) -> None:
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    claimed, decided = at_once(lambda: on(fiona, approval), lambda: say(approval, frank))
    assert isinstance(decided, Approval) and isinstance(claimed, (Claim, AlreadyDecided))
    assert not Claim.objects.filter(ended_at__isnull=True).exists() and Decision.objects.count() == 1
