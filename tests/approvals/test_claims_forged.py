"""Rows of who is on a case that were written past the application, or by it with no more rights than it has: nobody is
kept from anything."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from approvals.claims.acts import release
from approvals.claims.shown import on_each
from approvals.models import Approval, Claim
from durableagents.databases import RUNTIME_ROLE
from ledger.actors import Actor
from tests.approvals.setup import asked, say, somebody
from tests.approvals.test_claims import FINANCE, on, who
from tests.approvals.test_rule_changes import as_the_application
from tests.runs.stage import Stage
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def forged(approval: Approval, by: Actor, name: str = "", **said: Any) -> None:
    given = {"at": "clock_timestamp()", "until": "clock_timestamp() + interval '5 minutes'"} | said
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO approvals_claim (approval_id, person, by, role, at, until, ended_by, why) "
            f"VALUES (%s, %s, %s, %s, {given['at']}, {given['until']}, '', '')",
            [approval.pk, by.person, name or by.ref, FINANCE],
        )


def test_what_is_forged_keeps_nobody_from_anything(stage: Stage, tools: Toolbox) -> None:
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    now, soon, forever = "clock_timestamp()", "clock_timestamp() + interval '1 minute'", "'infinity'"
    never = [
        (now, forever),
        ("'-infinity'", forever),
        ("'-infinity'", soon),
        (soon, now),
        ("'0001-01-01 BC'", "'290000-01-01'"),
        (now, "clock_timestamp() + interval '9 days'"),
    ]
    for n, (at, until) in enumerate(never):
        forged(approval, somebody(f"ghost{n}", FINANCE), at=at, until=until)
    assert who(approval) == [], "what nobody can have said is not told"
    row = on(fiona, approval)
    forged(approval, frank, name="user:x\u202e" + "x" * 100_000)
    (one,) = [each for each in on_each([approval.pk])[approval.pk] if each.id != row.pk]
    assert len(one.by) == 200
    forged(approval, Actor("user", "nobody", person=10**12))
    assert "nobody" not in who(approval)
    say(approval, frank)
    assert Approval.objects.get().state == "approved" and not Claim.objects.filter(ended_at__isnull=True).exists()


def test_own_claims_that_were_made_endless_are_renewed_and_let_go(stage: Stage, tools: Toolbox) -> None:
    fiona, approval = somebody("fiona", FINANCE), asked(stage, tools)
    forged(approval, fiona, until="'infinity'")
    row = on(fiona, approval)
    assert row.until - timezone.now() < timedelta(minutes=11) and who(approval) == ["fiona"]
    release(approval.id, by=fiona)
    assert who(approval) == []


def test_the_database_keeps_who_was_on_it(stage: Stage, tools: Toolbox) -> None:
    fiona, approval = somebody("fiona", FINANCE), asked(stage, tools)
    row = on(fiona, approval)
    for change in ({"by": "user:else"}, {"person": 1}, {"at": timezone.now()}):
        with pytest.raises(DatabaseError), transaction.atomic():
            Claim.objects.filter(pk=row.pk).update(**change)
    release(approval.id, by=fiona)
    for change in ({"ended_at": None}, {"why": "taken over"}, {"until": timezone.now()}):
        with pytest.raises(DatabaseError), transaction.atomic():
            Claim.objects.filter(pk=row.pk).update(**change)


def test_the_application_may_do_all_of_it_and_takes_no_row_away(stage: Stage, tools: Toolbox) -> None:
    """With the rights that it has in the database, and not its owner's."""
    fiona, frank, approval = somebody("fiona", FINANCE), somebody("frank", FINANCE), asked(stage, tools)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {RUNTIME_ROLE}")
        row = on(fiona, approval)
        on(fiona, approval, minutes=20)
        on(frank, approval, take_over=row.pk)
        release(approval.id, by=frank)
        on(frank, approval)
        say(approval, fiona)
    assert [one.why for one in Claim.objects.order_by("id")] == ["taken over", "let go", "closed"]
    for statement in (
        "DELETE FROM approvals_claim",
        "UPDATE approvals_claim SET by = 'user:else'",
        "TRUNCATE approvals_claim",
        "UPDATE approvals_claim SET approval_id = approval_id",
        "UPDATE approvals_claim SET ended_at = NULL",
    ):
        with pytest.raises(DatabaseError):
            as_the_application(statement)
