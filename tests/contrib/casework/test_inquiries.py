"""Asking a named person about a case: they answer on it while the run waits, and its deadline may pause."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from approvals.cases.amending import amend
from approvals.models import Approval, Inquiry
from approvals.services import AlreadyDecided
from durableagents import Context, End
from durableagents.contrib.casework.inquiries import AlreadyEnded, answer, ask, withdraw
from durableagents.contrib.notifications.models import Notice
from ledger import events as e
from ledger.actors import Actor
from ledger.append import override
from ledger.errors import Forbidden, InvalidInput, JustificationRequired, NotFound
from ledger.models import ActRecord, Head
from ledger.verification.runs import verify
from runs.models import Run
from tests.contrib.calendars.timing import timing
from tests.integration.approvals.setup import asked, boss, limited, say, somebody, sound
from tests.integration.runs.stage import Stage, at_once, events
from tests.rewriting import rewrite
from tests.tampering import run_sql
from tests.world import Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
ROLE = "approver_finance"
WHAT = "Is this the price that you agreed with them?"


@pytest.fixture
def ira() -> Actor:
    return somebody("ira", "integrator")


def test_someone_who_is_asked_answers_on_the_record_and_the_call_waits_meanwhile(
    stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor
) -> None:
    case = asked(stage, tools)
    row = ask(case.id, to="ira", question=WHAT, by=fiona)
    sound(case.run)
    (made,) = events(case.run, e.InquiryMade)
    assert (made.to, made.person, made.by, made.deadline, made.n) == ("ira", ira.person, "user:fiona", "", 0)
    assert made.payload == {"question": WHAT}
    (notice,) = Notice.objects.filter(kind="inquiry")
    assert (notice.person, notice.approval_id) == (ira.person, case.id)
    assert stage.drive() == "idle"
    done = answer(case.id, row.n, answer="Yes, with 30 days to pay.", by=ira)
    assert (done.outcome, done.ended_by, done.is_authentic) == ("answered", "user:ira", True)
    (ended,) = events(case.run, e.InquiryEnded)
    assert (ended.outcome, ended.by, ended.deadline) == ("answered", "user:ira", "")
    assert Notice.objects.get(kind="inquiry_answer").person == fiona.person
    acts = {row.action: row for row in ActRecord.objects.filter(run_id=case.run_id)}
    assert acts["inquiry"].by == "user:fiona" and acts["inquiry_answer"].by == "user:ira"
    sound(case.run)
    say(case, fiona)
    assert stage.drive() == "completed"
    sound(case.run)


def test_nobody_else_answers_and_nobody_twice(stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor) -> None:
    case, olga = asked(stage, tools), somebody("olga", "operator")
    ask(case.id, to="ira", question=WHAT, by=fiona)
    for other in (fiona, olga, replace(ira, person=None)):
        with pytest.raises(Forbidden):
            answer(case.id, 0, answer="Yes, of course.", by=other)
    for n in (1, 7):
        with pytest.raises(NotFound):
            answer(case.id, n, answer="Yes, of course.", by=ira)
    with pytest.raises(JustificationRequired, match="needs your answer"):
        answer(case.id, 0, answer="  ", by=ira)
    answer(case.id, 0, answer="Yes, of course.", by=ira)
    for late in (
        lambda: answer(case.id, 0, answer="No!", by=ira),
        lambda: withdraw(case.id, 0, justification="never mind", by=fiona),
    ):
        with pytest.raises(AlreadyEnded) as refused:
            late()
        assert "answered by user:ira" in str(refused.value)
    assert Inquiry.objects.get().answer == "Yes, of course."


def test_only_who_may_decide_asks(stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor) -> None:
    case, olga = asked(stage, tools), somebody("olga", "operator")
    for other in (ira, olga, somebody("lena", "approver_legal"), replace(fiona, person=None)):
        with pytest.raises(Forbidden):
            ask(case.id, to="ira", question=WHAT, by=other)
    rewrite(User.objects.filter(pk=fiona.person), is_active=False)
    with pytest.raises(Forbidden):
        ask(case.id, to="ira", question=WHAT, by=fiona)
    frank = somebody("frank", ROLE)  # having steered the run, they decide nothing of it
    override(Head.objects.get(run_id=case.run_id), "retry", by=frank, justification=WHAT, before={}, after={})
    with pytest.raises(Forbidden):
        ask(case.id, to="ira", question=WHAT, by=frank)
    assert not Inquiry.objects.exists() and not events(case.run, e.InquiryMade)


@pytest.mark.parametrize("to", ["fiona", "nobody", "", "adam", "gone", "empty"])
def test_who_can_t_be_asked(stage: Stage, tools: Toolbox, fiona: Actor, to: str) -> None:
    """Oneself, nobody, an auditor (read-only), a closed account, an account without a role."""
    case = asked(stage, tools)
    somebody("adam", "auditor")
    somebody("gone", "operator", is_active=False)
    somebody("empty")
    with pytest.raises(InvalidInput):
        ask(case.id, to=to, question=WHAT, by=fiona)
    assert not Inquiry.objects.exists()


def test_what_is_decided_is_not_asked_about_nor_answered(
    stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor
) -> None:
    case = asked(stage, tools)
    ask(case.id, to="ira", question=WHAT, by=fiona)
    say(case, somebody("frank", ROLE), "reject")
    with pytest.raises(AlreadyDecided):
        answer(case.id, 0, answer="Yes, of course.", by=ira)
    with pytest.raises((AlreadyDecided, Forbidden)):
        ask(case.id, to="ira", question=WHAT, by=fiona)
    sound(case.run)


# --- its deadline -----------------------------------------------------------------------------------------------------


def test_the_clock_stands_while_somebody_is_asked_and_goes_on_with_the_answer(
    stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor
) -> None:
    timing(boss(), clock_stops_hours=8, remind=[50])
    case = asked(stage, tools)
    before = case.deadline
    ask(case.id, to="ira", question=WHAT, by=fiona)
    case = Approval.objects.get(pk=case.pk)
    assert case.deadline - before == timedelta(hours=8) == case.wait.deadline - before
    sound(case.run)
    ask(case.id, to="ira", question="And who signed it?", by=fiona)
    case = Approval.objects.get(pk=case.pk)
    assert case.deadline - before == timedelta(hours=8), "it stands already"
    answer(case.id, 0, answer="Yes, of course.", by=ira)
    case = Approval.objects.get(pk=case.pk)
    assert case.deadline - before == timedelta(hours=8), "one has not answered"
    answer(case.id, 1, answer="Their director.", by=ira)
    case = Approval.objects.get(pk=case.pk)
    stood = case.deadline - before
    asked_at, ended_at = (Inquiry.objects.get(n=0).at, Inquiry.objects.get(n=1).ended_at)
    assert ended_at is not None and stood == ended_at - asked_at and stood < timedelta(minutes=1)
    sound(case.run)


# --- forged -----------------------------------------------------------------------------------------------------------


def test_what_was_written_past_us_is_found_and_answered_by_nobody(
    stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor
) -> None:
    case = asked(stage, tools)
    ask(case.id, to="ira", question=WHAT, by=fiona)
    frank = somebody("frank", "operator")
    run_sql("UPDATE approvals_inquiry SET person = %s, \"to\" = 'frank'", frank.person)
    with pytest.raises(NotFound):
        answer(case.id, 0, answer="Yes, of course.", by=frank)
    found = list(verify(case.run_id).problems)
    assert any("person" in each for each in found) and any("installation's key" in each for each in found)


# --- at once ----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_of_many_answers_and_withdrawals_at_once_one_stands(
    stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor
) -> None:
    case = asked(stage, tools)
    ask(case.id, to="ira", question=WHAT, by=fiona)

    def go(i: int) -> str:
        try:
            if i % 2:
                withdraw(case.id, 0, justification=f"mind {i}", by=fiona)
            else:
                answer(case.id, 0, answer=f"Yes, {i}.", by=ira)
        except AlreadyEnded:
            return "late"
        return "done"

    found = at_once(*[lambda i=i: go(i) for i in range(16)])
    assert sorted(map(str, found)).count("done") == 1
    assert len(events(case.run, e.InquiryEnded)) == 1
    sound(Run.objects.get(pk=case.run_id))


def test_a_case_that_is_amended_while_somebody_is_asked_has_the_time_that_was_left(
    stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor
) -> None:
    admin = boss()
    timing(admin, clock_stops_hours=8)
    limited(admin, "100")
    assert tools.pay.gate is not None
    pay = replace(tools.pay, gate=replace(tools.pay.gate, amount="amount USD", editable=["amount"]))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name="po", amount=5000))).ref)

    stage.start(agent_of(node, tools=[pay]))
    assert stage.drive() == "parked"
    case = Approval.objects.get()
    before = case.deadline
    ask(case.id, to="ira", question=WHAT, by=fiona)
    done = amend(case.id, plan_hash=case.plan_hash, arguments={"amount": 4000}, justification="too much", by=fiona)
    after = Approval.objects.get(pk=done.approval.pk)
    assert after.state == "open" and timedelta() <= after.deadline - before < timedelta(minutes=1)
    assert after.timing is not None and after.timing["clock_stops"] == 479, "a part of a minute is used up"
    with pytest.raises(AlreadyDecided):
        answer(case.id, 0, answer="Yes, of course.", by=ira)
    sound(case.run)
