"""Rows of standing grants that were written past the application, or by it with no more rights than it has: they let
nothing through, and verification names them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pgtrigger
import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse

from approvals.granting.acts import GrantOver, take_back
from approvals.granting.listed import one, page
from approvals.grants.models import StandingEnd, StandingGrant, StandingUse
from approvals.models import Approval
from durableagents.databases import RUNTIME_ROLE
from durableagents.identity.auth import issue_key
from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify
from runs.models import Wait
from runs.services import lifecycle
from tests.approvals.granting import allowed, asks, given, paid, paying, refused, state, swept
from tests.approvals.setup import WHY, boss, somebody
from tests.approvals.test_rule_changes import as_the_application
from tests.runs.stage import Stage
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
ROLE = "approver_finance"
COLUMNS = (
    "approval_id, run_id, queue, tool, agent, is_of_run, same, fields, count, most, currency, until, person, by, role, "
    "reason, at, code"
)


def named() -> list[str]:
    """What is said of forged rows of it."""
    return [problem for each in verify_registers() for problem in each.problems if "standing" in problem]


def copied(grant: StandingGrant, approval: Approval, **other: str) -> None:
    """The same row at another question, code and all, but for what is said otherwise."""
    said = ", ".join(other.get(name.strip(), name.strip()) for name in COLUMNS.split(", "))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO approvals_standinggrant ({COLUMNS}) SELECT {said} FROM approvals_standinggrant WHERE id = %s",
            [grant.pk],
        )


def test_with_the_applications_rights_it_is_given_used_and_taken_back_and_nothing_of_it_changes(
    stage: Stage, tools: Toolbox, fiona: Actor
) -> None:
    allowed(boss())
    agent = paying(tools)
    first = asks(stage, agent)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {RUNTIME_ROLE}")
        grant = given(first, fiona)
    case = asks(stage, agent)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {RUNTIME_ROLE}")
        swept()
        take_back(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    assert state(case.run) == "approved"
    for table in ("grant", "use", "end"):
        for statement in ("DELETE FROM {}", "UPDATE {} SET at = at", "TRUNCATE {}"):
            with pytest.raises(DatabaseError):
                as_the_application(statement.format(f"approvals_standing{table}"))


@pytest.mark.parametrize("what", ["copied", "wider", "endless", "nobody's", "not JSON"])
def test_a_forged_grant_answers_nothing(stage: Stage, tools: Toolbox, fiona: Actor, what: str) -> None:
    allowed(boss())
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona, times=1)
    other = asks(stage, agent)
    swept()
    assert state(other.run) == "approved" and stage.drive() == "completed"
    case = asks(stage, agent)
    copied(
        grant,
        case,
        approval_id=f"'{case.pk}'::uuid",
        at="at - interval '1 day'",
        **{
            "copied": {},
            "wider": {"count": "1000"},
            "endless": {"until": "'infinity'::timestamptz"},
            "nobody's": {"person": "10000000000"},
            "not JSON": {"fields": "'[1]'::jsonb", "code": "NULL"},
        }[what],
    )
    swept()
    assert state(case.run) == "open" and StandingUse.objects.count() == 1
    assert any("was not written with this installation's key" in problem for problem in named())
    assert any("no decision gives it" in problem for problem in verify(grant.run_id).problems)
    assert page(boss_of())


def boss_of() -> Any:
    from django.contrib.auth.models import User

    return User.objects.get(username="boss")


@pytest.mark.parametrize("amount", ["-1000000", "1", "NULL"])
def test_a_forged_use_stops_the_grant(stage: Stage, tools: Toolbox, fiona: Actor, amount: str) -> None:
    """One of less than nothing would make room for more."""
    allowed(boss())
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    case = asks(stage, agent)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO approvals_standinguse (grant_id, n, approval_id, run_id, amount, at, code) "
            f"VALUES (%s, 9, %s, %s, {amount}, clock_timestamp(), NULL)",
            [grant.pk, grant.approval_id, grant.run_id],
        )
    swept()
    assert state(case.run) == "open"
    assert any("and no event says so" in problem for problem in verify(grant.run_id).problems)


def test_whatever_says_that_it_was_taken_back_takes_it_back(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    case = asks(stage, agent)
    StandingEnd.objects.create(grant=grant, by="user:x", role="operator", reason="x", at=grant.at)
    swept()
    assert state(case.run) == "open" and named()
    assert "taken back by user:x" in str(refused(case, grant)), "between the look and the yes too"


def test_a_question_that_was_made_to_look_the_same_is_not(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    """What finds a grant is a column; what counts is the plan, and what the journal says of that."""
    allowed(boss())
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    case = asks(stage, agent, "gold 5000")
    Approval.objects.filter(pk=case.pk).update(same=grant.same)
    swept()
    assert state(case.run) == "open" and "about something else" in str(refused(case, grant))
    assert any("same says" in problem for problem in verify(case.run_id).problems)
    with pgtrigger.ignore("approvals.Approval:question_is_frozen"):
        plan, its = bytes(grant.approval.plan), grant.approval.plan_hash
        Approval.objects.filter(pk=case.pk).update(plan=plan, plan_hash=its)
    swept()
    while stage.drive() not in ("idle", "waiting_human"):
        pass
    assert [each.tool for each in tools.outside.seen("pay")] == ["pay"], "the other one only"


def test_a_yes_that_lapsed_and_was_set_back_is_found(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    agent, olga = paying(tools), somebody("olga", "operator")
    grant = given(asks(stage, agent), fiona)
    case = asks(stage, agent)
    lifecycle.pause(case.run_id, by=olga, justification=WHY)
    swept()
    take_back(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    Wait.objects.filter(pk=case.wait_id).update(grant_expires_at=grant.until + timedelta(days=1))
    assert any("its grant does not end when it should" in problem for problem in verify(case.run_id).problems)


def test_a_row_that_nobody_can_read_keeps_no_other_from_being_used(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    agent = paying(tools)
    given(asks(stage, agent), fiona)
    given(asks(stage, paying(tools, name="second")), fiona)
    with pgtrigger.ignore("approvals.StandingGrant:append_only"), connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_standinggrant SET until = 'infinity', at = '-infinity' WHERE agent = 'payer'")
    one, other = asks(stage, agent), asks(stage, paying(tools, name="second"))
    swept()
    assert (state(one.run), state(other.run)) == ("open", "approved")
    assert {shown.state for shown in page(boss_of())} == {"not_genuine", "active"}
    assert paid(tools) <= 2 and len(named()) == 1


@pytest.mark.parametrize("who", ["whoever gave it", "an operator", "an administrator"])
def test_under_a_forged_queue_whoever_needs_no_place_there_takes_it_back(
    stage: Stage, tools: Toolbox, fiona: Actor, who: str
) -> None:
    """And whoever would do so by being in charge of the queue, which nobody is by that row, is told so."""
    admin, olga, frank = boss(), somebody("olga", "operator"), somebody("frank", ROLE)
    lena = somebody("lena", "approver_legal")
    allowed(admin)
    grant = given(asks(stage, paying(tools)), fiona)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_queue SET role = 'approver_legal' WHERE name = 'finance_po'")
    for other, role in ((frank, ROLE), (lena, "approver_legal")):
        with pytest.raises(Forbidden, match="finance_po was changed past this installation"):
            take_back(grant.pk, justification=WHY, by=other, roles=[role])
    by, roles, role = {
        "whoever gave it": (fiona, [ROLE], ROLE),
        "an operator": (olga, ["operator"], "operator"),
        "an administrator": (admin, [], "admin"),
    }[who]
    assert take_back(grant.pk, justification=WHY, by=by, roles=roles).end is not None
    assert StandingEnd.objects.get(grant=grant).role == role


@pytest.mark.parametrize(
    "other",
    [
        {"most": "1e28"},
        {"most": "'NaN'"},
        {"most": "-1e29"},
        {"until": "'infinity'::timestamptz"},
        {"person": "10000000000"},
        {"count": "-1"},
        {"fields": "'[1]'::jsonb"},
        {"reason": "repeat('x', 100000)"},
    ],
    ids=str,
)
def test_forged_rows_are_shown_and_keep_no_page_from_anybody(
    stage: Stage, tools: Toolbox, fiona: Actor, other: dict[str, str]
) -> None:
    allowed(boss())
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    case = asks(stage, agent)
    copied(grant, case, approval_id=f"'{case.pk}'::uuid", **other)
    forged = StandingGrant.objects.exclude(pk=grant.pk).values_list("pk", flat=True).get()
    client = Client()
    client.force_login(boss_of())
    for path in (reverse("standing_grants"), *(reverse("standing_grant", args=[pk]) for pk in (grant.pk, forged))):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert ("not genuine" in answer.content.decode().lower()) == (
            path != reverse("standing_grant", args=[grant.pk])
        )
    assert [(each.state, each.sum_words) for each in page(boss_of())] == [
        ("active", "$0 of $20,000") if each.row.pk == grant.pk else ("not_genuine", "") for each in page(boss_of())
    ]


DEEP = "[" * 3000 + "]" * 3000


@pytest.mark.parametrize(
    "other",
    [
        {"fields": "'[1e5000]'::jsonb"},
        {"fields": f"'{DEEP}'::jsonb"},
        {"queue": "'a/b'"},
        {"queue": "''", "fields": "'[1e5000]'::jsonb"},
    ],
    ids=["a number of 5,000 digits", "3,000 lists", "a queue that no address holds", "both"],
)
def test_a_row_that_nobody_can_read_has_its_place_on_every_page(
    stage: Stage, tools: Toolbox, fiona: Actor, other: dict[str, str]
) -> None:
    """It is found by its number, can be told from others, and takes no page away."""
    allowed(boss())
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    case = asks(stage, agent)
    copied(grant, case, approval_id=f"'{case.pk}'::uuid", **other)
    forged = StandingGrant.objects.exclude(pk=grant.pk).values_list("pk", flat=True).get()
    user, client = boss_of(), Client()
    client.force_login(user)
    key = {"Authorization": f"Bearer {issue_key(user, 'test')}"}
    found = client.get(reverse("standing_grants"))
    assert found.status_code == 200 and f'href="{reverse("standing_grant", args=[forged])}"' in found.content.decode()
    whole = client.get(reverse("standing_grant", args=[forged]))
    assert whole.status_code == 200 and "Not genuine" in whole.content.decode()
    assert str(case.pk) in whole.content.decode()
    rows = client.get("/api/v1/grants", headers=key).json()["results"]
    told = {row["id"]: (row["state"], row["approval_id"], row["times"]) for row in rows}
    assert told == {
        grant.pk: ("active", str(grant.approval_id), grant.count),
        forged: ("not_genuine", str(case.pk), grant.count),
    }
    alone = client.get(f"/api/v1/grants/{forged}", headers=key).json()
    assert alone["id"] == forged and alone["run_id"] == str(grant.run_id)


def test_a_row_under_a_number_that_is_none_is_no_link(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    case = asks(stage, agent)
    copied(grant, case, approval_id=f"'{case.pk}'::uuid")
    with pgtrigger.ignore("approvals.StandingGrant:append_only"), connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_standinggrant SET id = -5 WHERE id <> %s", [grant.pk])
    client = Client()
    client.force_login(boss_of())
    found = client.get(reverse("standing_grants"))
    assert found.status_code == 200 and 'id="grant--5"' in found.content.decode()


@pytest.mark.parametrize("amount", ["1e29", "'NaN'", "-1e28"])
def test_the_amount_of_a_forged_use_keeps_no_page_from_anybody(
    stage: Stage, tools: Toolbox, fiona: Actor, amount: str
) -> None:
    allowed(boss())
    grant = given(asks(stage, paying(tools)), fiona)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO approvals_standinguse (grant_id, n, approval_id, run_id, amount, at, code) "
            f"VALUES (%s, 9, %s, %s, {amount}, clock_timestamp(), NULL)",
            [grant.pk, grant.approval_id, grant.run_id],
        )
    client = Client()
    client.force_login(boss_of())
    for path in (reverse("standing_grants"), reverse("standing_grant", args=[grant.pk])):
        assert client.get(path).status_code == 200
    assert verify(grant.run_id).problems


def test_under_a_forged_end_what_was_not_used_lapses_all_the_same(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    """Its row stays, for nothing takes it away; that somebody took it back is on record, and said."""
    admin, olga = boss(), somebody("olga", "operator")
    allowed(admin)
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    assert stage.drive() == "completed"
    case = asks(stage, agent)
    lifecycle.pause(case.run_id, by=olga, justification=WHY)
    swept()
    with pgtrigger.ignore("approvals.StandingEnd:append_only"):
        StandingEnd.objects.create(grant=grant, by="user:x", role="operator", reason="x", at=grant.at)
    reader, client = boss_of(), Client()
    assert (one(grant.pk, reader).state, one(grant.pk, reader).may_end) == ("not_genuine", True)
    client.force_login(reader)
    at = reverse("standing_grant_ends", args=[grant.pk])
    answer = client.post(at, {"justification": WHY}, follow=True)
    assert "a row says that was written past this installation" in answer.content.decode()
    (act,) = ActRecord.objects.filter(action="standing_revoke")
    assert act.after == {"lapsed": 1} and StandingEnd.objects.get().by == "user:x"
    assert Wait.objects.get(pk=case.wait_id).grant_expires_at == act.at
    assert verify(case.run_id).problems == [], "what was not right is its end, and no run"
    assert any("end of standing grant" in each or "standing_end" in each for each in named())
    with pytest.raises(GrantOver, match="no yes of it lies unused"):
        take_back(grant.pk, justification=WHY, by=admin, roles=[])
    assert not one(grant.pk, reader).may_end
    lifecycle.resume(case.run_id, by=olga, justification=WHY)
    assert stage.drive() == "parked" and paid(tools) == 1
