"""Absences end early when the principal is back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals.queue_models import Deputy
from durableagents.contrib.calendars import absences as away
from durableagents.contrib.calendars.models import Absence
from durableagents.contrib.calendars.services import AbsenceBody
from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.models import ActRecord
from tests.contrib.calendars.timing import away as appointed
from tests.integration.approvals.setup import WHY, asked, boss, say, somebody
from tests.integration.runs.stage import Stage
from tests.rewriting import rewrite
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def leaves(by: Actor, deputy: str = "", person: str = "", days: float = 2, **more: Any) -> Absence:
    ends_at = timezone.now() + timedelta(days=days)
    body = AbsenceBody(ends_at=ends_at, deputy=deputy, person=person, justification=WHY, **more)
    return away.record_absence(body, by=by)


def stand() -> set[int]:
    return set(Deputy.objects.filter(revoked_at__isnull=True).values_list("pk", flat=True))


def test_a_deputy_who_was_named_with_an_absence_ends_with_it(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "operator")
    row, approval = leaves(ann, "bob"), asked(stage, tools)
    assert row.deputy is not None and row.is_authentic and stand() == {row.deputy_id}
    away.end_absence(row.pk, by=ann, justification="back early")
    with pytest.raises(Forbidden, match="You are no longer a deputy of ann"):
        say(approval, bob)
    (ended,) = ActRecord.objects.filter(action="deputy_revoke")
    assert (ended.by, ended.subject, ended.justification) == ("user:ann", "bob for ann", "back early")
    assert ended.after["revoked_at"] and Absence.objects.get().is_authentic and Deputy.objects.get().is_authentic
    (answer,) = ActRecord.objects.filter(action="absence_end")
    assert answer.before["deputy"] == row.deputy_id


def test_of_absences_that_overlap_each_ends_its_own_deputy_and_no_other(stage: Stage, tools: Toolbox) -> None:
    ann, admin = somebody("ann", "approver_finance"), boss()
    somebody("bob", "operator")
    first, second = leaves(ann, "bob"), leaves(admin, "bob", "ann", days=4)
    own = appointed(ann, "bob")
    assert len(stand()) == 3
    away.end_absence(first.pk, by=admin, justification=WHY)
    assert stand() == {second.deputy_id, own.pk}
    away.end_absence(second.pk, by=ann, justification=WHY)
    assert stand() == {own.pk}


def test_a_forged_absence_ends_nobodys_deputy(stage: Stage, tools: Toolbox) -> None:
    ann, cora, admin = somebody("ann", "approver_finance"), somebody("cora", "approver_finance"), boss()
    somebody("bob", "operator")
    row, now = leaves(ann, "bob"), timezone.now()
    forged = Absence.objects.create(
        person=cora.person,
        starts_at=now,
        ends_at=now + timedelta(days=1),
        reason="x",
        set_by="user:cora",
        made_at=now,
        deputy_id=row.deputy_id,
        code=bytes(33),
    )
    away.end_absence(forged.pk, by=admin, justification=WHY)
    assert stand() == {row.deputy_id}


@pytest.mark.parametrize("why", ["inactive", "away", "auditor", "there"])
def test_a_deputy_who_cant_decide_is_nobody_there(stage: Stage, tools: Toolbox, why: str) -> None:
    """Everyone in a queue is away, and the deputy is away as well, or may not sign in or decide."""
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "approver_legal")
    approved = asked(stage, tools)
    leaves(ann, "bob")
    assert not away.is_deserted("finance_po")
    user = User.objects.get(pk=bob.person)
    if why == "inactive":
        rewrite(User.objects.filter(pk=user.pk), is_active=False)
    elif why == "auditor":
        user.groups.set([Group.objects.get_or_create(name="auditor")[0]])
    else:
        leaves(boss(), person="bob", starts_at=timezone.now() + timedelta(hours=0 if why == "away" else 1))
    assert away.is_deserted("finance_po") is (why != "there")
    if why == "there":
        assert say(approved, bob).state == "approved"
