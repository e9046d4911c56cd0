"""Rows of standing grants that were written past the application, or by it with no more rights than it has: they let
nothing through, and verification names them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pgtrigger
import pytest
from django.db import DatabaseError, connection, transaction

from approvals.granting.acts import take_back
from approvals.granting.listed import page
from approvals.grants.models import StandingEnd, StandingGrant, StandingUse
from approvals.models import Approval
from durableagents.databases import RUNTIME_ROLE
from ledger.actors import Actor
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify
from runs.models import Wait
from runs.services import lifecycle
from tests.integration.approvals.granting import allowed, asks, given, paying, refused, state, swept
from tests.integration.approvals.setup import WHY, boss, somebody
from tests.integration.approvals.test_rule_changes import as_the_application
from tests.integration.runs.stage import Stage
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
