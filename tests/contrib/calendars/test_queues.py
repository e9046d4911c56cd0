"""Queues and limits as data: an administrator's setting counts at once, for everybody, and is recorded."""

from __future__ import annotations

from functools import partial

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from approvals.authentic import authentic
from approvals.queue_models import Queue
from approvals.queues import acts
from approvals.queues.acts import LiftBody, QueueChangeBody
from durableagents.contrib.calendars import deputies
from durableagents.contrib.calendars.models import Calendar
from durableagents.contrib.calendars.views import CalendarForm, TimingForm
from durableagents.databases import RUNTIME_ROLE
from ledger.actors import Actor
from ledger.errors import InvalidInput
from ledger.models import ActRecord
from ledger.zones import zones
from tests.cases import each_case
from tests.contrib.calendars.timing import OFFICE, away, calendar
from tests.integration.approvals.setup import WHY, boss, limited, somebody
from tests.integration.approvals.test_queues import added
from tests.integration.runs.stage import Stage, at_once

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(stage: Stage) -> Actor:
    return boss()


def test_every_act_is_within_what_the_applications_own_role_may_do(stage: Stage) -> None:
    """The role owns nothing; no action may write a column it may not change."""
    admin, ann = boss(), somebody("ann", "approver_finance")
    somebody("bob", "operator")
    Group.objects.get_or_create(name="approver_refunds")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {RUNTIME_ROLE}")
        added(admin)
        acts.change("refunds", QueueChangeBody(title="Pay back", needs_amount=True, justification=WHY), by=admin)
        limited(admin, "50000", queue="refunds")
        limited(admin, "60000", queue="refunds")
        acts.lift("refunds", LiftBody(justification=WHY), by=admin)
        acts.close("refunds", by=admin, justification=WHY)
        acts.open_again("refunds", by=admin, justification=WHY)
        acts.remove("refunds", by=admin, justification=WHY)
        deputies.end_deputyship(away(ann, "bob").pk, by=ann, justification=WHY)
        cursor.execute("RESET ROLE")
    assert Queue.objects.get(name="refunds").is_authentic and all(authentic(list(ActRecord.objects.all())))


@pytest.mark.usefixtures("db")
@each_case(
    "zone",
    [
        "localtime",
        "posixrules",
        "Factory",
        "right/Europe/Berlin",
        "posix/Europe/Berlin",
        "europe/berlin",
        "zone.tab",
        "Europe/Berlin ",
    ],
)
def test_a_zone_that_is_another_one_on_another_machine_is_none(zone: str) -> None:
    with pytest.raises(InvalidInput, match="zone"):
        calendar(boss(), zone=zone)
    assert {"Europe/Berlin", "UTC", "America/New_York", "Asia/Kathmandu"} <= zones()


def test_of_two_names_alike_at_once_one_is_added(stage: Stage) -> None:
    admin = boss()
    found = at_once(*(partial(calendar, admin, name) for name in ("DE", "de", "De", "dE") * 4))
    assert sum(isinstance(each, Calendar) and each.version == 1 for each in found) == 1
    assert len(set(Calendar.objects.values_list("name", flat=True))) == 1


def refusals(form: TimingForm | CalendarForm) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInput) as error:
        form.as_body()
    assert not any(character.isdigit() for character in error.value.detail), "no place that nobody sees"
    return [(each["field"], each["problem"]) for each in error.value.extra["errors"]]


def test_what_is_wrong_with_a_form_is_told_of_the_field_that_is_seen() -> None:
    form = TimingForm(
        on_timeout="escalate", to2="legal", hours2="many", to3="board", remind="50, half, 120%", justification=WHY
    )
    result = refusals(form)
    assert [field for field, _ in result] == ["steps", "steps", "remind", "remind"]
    begins = ("hours (2): ", "hours (3): ", "half: ", "120: ")
    assert all(problem.startswith(begin) for (_, problem), begin in zip(result, begins, strict=True))
    lines = "2026-12-25 Christmas Day\n\nsoon the fair"
    (found,) = refusals(CalendarForm(name="DE", zone="UTC", holidays=lines, justification=WHY, **OFFICE))
    assert found[0] == "holidays" and found[1].startswith("line 3: ")
