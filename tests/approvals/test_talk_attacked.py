"""Inquiries and delegations as an outsider tries them: rows that none of our processes wrote, accounts that went,
roles that were taken, acts in the wrong order. Nothing of it gives anybody anything, or keeps anybody from anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from approvals.calendars.models import Escalation
from approvals.consulting.delegations import delegate, take_back
from approvals.consulting.inquiries import answer, ask, withdraw
from approvals.models import Approval, Delegation, Inquiry
from ledger.actors import Actor
from ledger.append import override
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.models import Head
from ledger.verification.runs import verify
from runs.models import Run
from tests.approvals.setup import WHY, asked, away, say, somebody, sound
from tests.approvals.test_damaged import NEVER, client_of, statuses
from tests.runs.stage import Stage, at_once
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
ROLE, WHAT = "approver_finance", "Is this the price that you agreed with them?"


@pytest.fixture
def ira() -> Actor:
    """An integrator, whose run it isn't."""
    return somebody("ira", "integrator")


@pytest.fixture
def case(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, tools)


def pages(case: Approval) -> dict[str, Any]:
    return {"paths": ("/", "/inbox", f"/inbox/{case.pk}"), "reads": ("/approvals", f"/approvals/{case.pk}")}


def forged_inquiry(case: Approval, person: int | None, *, n: int = 0, at: str = "now", **more: Any) -> None:
    """As whoever has the application's rights in the database writes it."""
    given = {"outcome": "", "answer": "", "ended_by": "", "ended_at": None, "to": "ira", "code": bytes(33)} | more
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO approvals_inquiry (approval_id, run_id, n, asker, by, role, person, "to", question,'
            " stops_clock, at, outcome, answer, ended_by, ended_at, code)"
            " SELECT %s, %s, %s, u.id, 'user:fiona', 'approver_finance', %s, %s, 'x', true, %s, %s, %s, %s, %s, %s"
            " FROM auth_user u WHERE u.username = 'fiona'",
            [
                case.pk,
                case.run_id,
                n,
                person,
                given["to"],
                at,
                given["outcome"],
                given["answer"],
                given["ended_by"],
                given["ended_at"],
                given["code"],
            ],
        )


def forged_delegation(case: Approval, deputy: int | None, *, n: int = 0, at: str = "now", **more: Any) -> None:
    given = {"ended_at": None, "code": bytes(33)} | more
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO approvals_delegation (approval_id, run_id, n, principal, by, role, deputy, "to", reason,'
            " made_at, ended_at, ended_by, code)"
            " SELECT %s, %s, %s, u.id, 'user:fiona', 'approver_finance', %s, 'ira', 'x', %s, %s, '', %s"
            " FROM auth_user u WHERE u.username = 'fiona'",
            [case.pk, case.run_id, n, deputy, at, given["ended_at"], given["code"]],
        )


# --- what is forged gives no sight --------------------------------------------------------------------------------


def test_a_forged_inquiry_shows_nobody_a_case(case: Approval, fiona: Actor, ira: Actor) -> None:
    forged_inquiry(case, ira.person)
    assert statuses(ira, **pages(case)) == {f"/inbox/{case.pk}": 404, f"/api/v1/approvals/{case.pk}": 404}
    client = client_of(ira)
    assert str(case.pk) not in client.get("/inbox").content.decode()
    assert client.get("/api/v1/approvals").json()["results"] == []
    with pytest.raises(NotFound):
        answer(case.id, 0, answer="Yes, of course.", by=ira)


def test_a_forged_delegation_shows_nobody_a_case_and_can_t_be_made_genuine(
    case: Approval, fiona: Actor, ira: Actor
) -> None:
    forged_delegation(case, ira.person)
    assert statuses(ira, **pages(case)) == {f"/inbox/{case.pk}": 404, f"/api/v1/approvals/{case.pk}": 404}
    with pytest.raises(NotFound):
        take_back(case.id, 0, justification=WHY, by=fiona)
    assert not Delegation.objects.get().is_genuine


def test_where_a_question_is_said_to_have_gone_shows_nobody_what_is_asked(
    case: Approval, fiona: Actor, ira: Actor
) -> None:
    """Neither to the people of that queue, nor to whoever stands in for them."""
    lena = somebody("lena", "approver_legal")
    away(lena, "ira")
    Escalation.objects.create(
        approval=case,
        n=1,
        run_id=case.run_id,
        queue="legal",
        cause="timeout",
        deadline=case.deadline,
        at=case.opened_at,
    )
    with connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_approval SET escalated_to = '{legal}'")
        cursor.execute("UPDATE runs_wait SET also = '{legal}' WHERE id = %s", [case.wait_id])
    seen = client_of(lena).get(f"/api/v1/approvals/{case.pk}").json()
    assert seen["hidden"] is True and seen["arguments"] is None
    (wait,) = client_of(lena).get(f"/api/v1/runs/{case.run_id}").json()["waiting_for"]
    assert (
        "headline" not in wait["detail"]
        and "headline" in client_of(fiona).get(f"/api/v1/runs/{case.run_id}").json()["waiting_for"][0]["detail"]
    )
    (listed,) = client_of(lena).get("/api/v1/approvals").json()["results"]
    assert listed["hidden"] is True
    assert statuses(ira, **pages(case)) == {f"/inbox/{case.pk}": 404, f"/api/v1/approvals/{case.pk}": 404}


# --- and keeps nobody from anything -------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "n"), zip(NEVER, [-1, 0, 1, 2**31 - 1], strict=True))
def test_rows_that_say_what_can_t_be_break_no_page_and_stop_nobody(
    case: Approval, fiona: Actor, ira: Actor, at: str, n: int
) -> None:
    beside = n + (1 if n < 9 else -1)
    forged_inquiry(case, ira.person, n=n, at=at, outcome="answered", ended_by="x" * 100_000, answer="y\u202ez")
    forged_inquiry(case, fiona.person, n=beside, at=at)
    forged_delegation(case, ira.person, n=n, at=at, ended_at=at)
    forged_delegation(case, fiona.person, n=beside, at=at)
    assert "The clock stands" not in client_of(fiona).get(f"/inbox/{case.pk}").content.decode()
    for who in (fiona, ira, somebody("olga", "operator"), somebody("adam", "auditor")):
        told = statuses(who, **pages(case))
        assert told == ({} if who is not ira else {f"/inbox/{case.pk}": 404, f"/api/v1/approvals/{case.pk}": 404})
    row = ask(case.id, to="ira", question=WHAT, by=fiona)
    answer(case.id, row.n, answer="Yes, of course.", by=ira)
    handed = delegate(case.id, to="ira", justification=WHY, by=fiona)
    say(case, ira)
    assert Approval.objects.get().state == "approved"
    assert (row.is_genuine, handed.is_genuine) == (True, True)
    found = list(verify(case.run_id).problems)
    forged = {f"inquiry {x}" for x in (n, beside)} | {f"delegation {x}" for x in (n, beside)}
    assert {" ".join(each.split()[:2]) for each in found} == forged, "the forged ones are found, and no others"


def test_forged_rows_use_up_nobodys_questions(case: Approval, fiona: Actor, ira: Actor) -> None:
    for n in range(45):
        forged_inquiry(case, ira.person, n=n)
    somebody("dan", "operator")
    for n in range(45):
        forged_delegation(case, 10**6 + n, n=n)
    row = ask(case.id, to="ira", question=WHAT, by=fiona)
    assert answer(case.id, row.n, answer="Yes, of course.", by=ira).is_genuine
    assert delegate(case.id, to="dan", justification=WHY, by=fiona).is_genuine


def test_a_forged_delegation_keeps_no_genuine_one_out(case: Approval, fiona: Actor, ira: Actor) -> None:
    forged_delegation(case, ira.person, n=7)
    with pytest.raises(InvalidInput, match="not put on record here"):
        delegate(case.id, to="ira", justification=WHY, by=fiona)
    delegate(case.id, to=somebody("dan", "operator").name, justification=WHY, by=fiona)


# --- accounts that went, roles that were taken --------------------------------------------------------------------


def test_who_was_asked_answers_though_whoever_asked_is_gone(case: Approval, fiona: Actor, ira: Actor) -> None:
    ask(case.id, to="ira", question=WHAT, by=fiona)
    User.objects.filter(pk=fiona.person).delete()
    assert statuses(ira, **pages(case)) == {}
    assert answer(case.id, 0, answer="Yes, of course.", by=ira).outcome == "answered"
    assert statuses(somebody("frank", ROLE), **pages(case)) == {}
    sound(case.run)


@pytest.mark.parametrize("how", ["gone", "closed", "without", "auditor"])
def test_who_was_asked_and_lost_their_account_answers_nothing(
    case: Approval, fiona: Actor, ira: Actor, how: str
) -> None:
    ask(case.id, to="ira", question=WHAT, by=fiona)
    lose(ira, how)
    with pytest.raises(Forbidden):
        answer(case.id, 0, answer="Yes, of course.", by=ira)
    assert statuses(fiona, **pages(case)) == {}
    withdraw(case.id, 0, justification="they are gone", by=fiona)
    say(case, fiona)
    sound(case.run)


def lose(who: Actor, how: str) -> None:
    user = User.objects.get(pk=who.person)
    if how == "gone":
        user.delete()
    elif how == "closed":
        User.objects.filter(pk=user.pk).update(is_active=False)
    else:
        user.groups.set([] if how == "without" else [Group.objects.get_or_create(name="auditor")[0]])


@pytest.mark.parametrize("how", ["gone", "closed", "without", "auditor"])
def test_who_was_handed_a_case_and_lost_their_account_decides_nothing(
    case: Approval, fiona: Actor, ira: Actor, how: str
) -> None:
    delegate(case.id, to="ira", justification=WHY, by=fiona)
    lose(ira, how)
    with pytest.raises(Forbidden):
        say(case, ira)
    assert statuses(fiona, **pages(case)) == {}
    take_back(case.id, 0, justification=WHY, by=fiona)
    say(case, fiona)
    sound(case.run)


@pytest.mark.parametrize("how", ["gone", "closed", "without", "auditor"])
def test_what_was_handed_over_is_read_no_more_once_it_gives_nothing(
    case: Approval, fiona: Actor, ira: Actor, how: str
) -> None:
    somebody("frank", ROLE)
    delegate(case.id, to="ira", justification=WHY, by=fiona)
    path = f"/api/v1/approvals/{case.pk}"
    assert client_of(ira).get(path).json()["arguments"]
    lose(fiona, how)
    assert client_of(ira).get(path).status_code == 404
    assert str(case.pk) not in client_of(ira).get("/inbox").content.decode()


# --- out of order -------------------------------------------------------------------------------------------------


def test_what_was_handed_over_in_a_ring_is_one_word_for_each(case: Approval, fiona: Actor, ira: Actor) -> None:
    frank = somebody("frank", ROLE)
    delegate(case.id, to="frank", justification=WHY, by=fiona)
    delegate(case.id, to="fiona", justification=WHY, by=frank)
    delegate(case.id, to="ira", justification=WHY, by=fiona)
    delegate(case.id, to="ira", justification=WHY, by=frank)
    with pytest.raises(Forbidden, match="isn't handed on"):
        delegate(case.id, to="fiona", justification=WHY, by=replace(ira, role=ROLE))
    say(case, ira)
    for late in (fiona, frank, ira):
        with pytest.raises(DurableAgentsError):
            say(case, late)
    sound(case.run)


def test_who_steered_the_run_since_it_was_handed_to_them_decides_it_for_nobody(case: Approval, fiona: Actor) -> None:
    dora = somebody("dora", "operator")
    delegate(case.id, to="dora", justification=WHY, by=fiona)
    override(Head.objects.get(run_id=case.run_id), "retry", by=dora, justification=WHAT, before={}, after={})
    with pytest.raises(Forbidden, match="somebody else"):
        say(case, dora)
    say(case, fiona)


@pytest.mark.parametrize("n", [-1, 2**31, 2**63, 10**30])
def test_a_number_that_there_can_t_be_is_not_found(case: Approval, fiona: Actor, ira: Actor, n: int) -> None:
    for act in (
        lambda: answer(case.id, n, answer="Yes, of course.", by=ira),
        lambda: withdraw(case.id, n, justification=WHY, by=fiona),
        lambda: take_back(case.id, n, justification=WHY, by=fiona),
    ):
        with pytest.raises(NotFound):
            act()
    client = client_of(fiona)
    for path in (f"inquiries/{n}/answer", f"inquiries/{n}/withdraw", f"delegations/{n}/end"):
        told = client.post(f"/api/v1/approvals/{case.pk}/{path}", {"justification": WHY}, "application/json")
        assert told.status_code in (403, 404, 422), (path, told.status_code)


@pytest.mark.django_db(transaction=True)
def test_sixty_four_ask_and_hand_over_at_once(case: Approval, fiona: Actor, ira: Actor) -> None:
    for n in range(64):
        somebody(f"c{n}", "operator")

    def go(n: int) -> str:
        try:
            if n % 2:
                delegate(case.id, to=f"c{n}", justification=WHY, by=fiona)
            else:
                ask(case.id, to=f"c{n}", question=WHAT, by=fiona)
        except InvalidInput:
            return "one more than"
        return "done"

    found = at_once(*[lambda n=n: go(n) for n in range(64)])
    assert sorted(map(str, found)).count("done") == 10, found
    assert (Inquiry.objects.count(), Delegation.objects.count()) == (5, 5)
    sound(Run.objects.get(pk=case.run_id))
