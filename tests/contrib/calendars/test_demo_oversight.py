"""The demo sets up its refund queue once, by recorded actions, and people's later changes stay."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.contrib.auth.models import User

from approvals.models import Deputy, Limit, Queue
from approvals.queues import acts
from approvals.queues.acts import LiftBody, ReasonsBody
from durableagents.contrib.calendars import deputies
from durableagents.contrib.calendars import services as times
from durableagents.contrib.calendars.demo import CALENDAR
from durableagents.contrib.calendars.services import CalendarBody
from durableagents.contrib.calendars.versions import current_calendar, current_timing
from durableagents.contrib.policies import in_force
from durableagents.contrib.policies import services as policies
from durableagents.contrib.policies.demo import POLICY
from durableagents.contrib.policies.models import Policy
from durableagents.demo import oversight
from durableagents.demo.oversight import QUEUE, WHY, put_oversight
from durableagents.demo.registration import QUEUES
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from tests.integration.approvals.setup import boss, somebody

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def people(db: None) -> None:
    somebody("treasurer", QUEUES[QUEUE])
    somebody("operator", "operator")


def queue() -> Queue:
    return Queue.objects.get(name=QUEUE)


def limits() -> dict[str, Decimal | None]:
    names = dict(User.objects.values_list("pk", "username"))
    rows = Limit.objects.filter(queue=queue(), ended_at__isnull=True)
    return {names.get(row.person or 0, "role"): row.most for row in rows}


def test_all_that_can_be_said_of_a_queue_is_said_and_on_record() -> None:
    put_oversight()
    timing, calendar = current_timing(queue().pk), current_calendar(CALENDAR)
    assert timing is not None and calendar is not None and timing.is_authentic and calendar.is_authentic
    assert (timing.calendar, timing.steps, timing.clock_stops, timing.remind) == (
        CALENDAR,
        [["legal", 240]],
        480,
        [50, 80],
    )
    assert len(queue().reasons or []) == 4 and queue().is_authentic and queue().proof is not None
    assert queue().again == {"times": 10, "days": 90, "most": "2500"}
    assert limits() == {"role": 2500, "treasurer": 25_000}
    (deputy,) = Deputy.objects.all()
    assert deputy.queue == queue() and deputy.is_authentic
    assert in_force.read_policies().problem == "" and Policy.objects.get(name=POLICY).is_in_force
    assert {(act.by, act.auth, act.justification) for act in ActRecord.objects.all()} == {("system:demo", "shell", WHY)}
    assert [each for each in verify_registers() if each.problems] == []


def test_what_people_have_changed_or_taken_away_stays_so() -> None:
    put_oversight()
    admin = boss()
    acts.offer(QUEUE, ReasonsBody(reasons=[], justification="Everybody writes their own."), by=admin)
    acts.lift(QUEUE, LiftBody(justification="Finance is trusted."), by=admin)
    policies.retire(POLICY, by=admin, justification="Legal has no time.")
    deputies.end_deputyship(Deputy.objects.get().pk, by=admin, justification="The treasurer is back.")
    week = {"sat": "10:00-12:00"}
    times.set_calendar(CalendarBody(name=CALENDAR, zone="UTC", week=week, justification="Saturdays."), by=admin)
    before = ActRecord.objects.count()
    put_oversight()
    assert ActRecord.objects.count() == before
    assert queue().reasons is None and limits() == {"treasurer": 25_000}
    assert not Policy.objects.filter(ended_at__isnull=True).exists()
    assert current_calendar(CALENDAR).zone == "UTC"  # type: ignore[union-attr]


@pytest.mark.parametrize("after", range(9))
def test_a_start_that_was_killed_in_the_middle_is_gone_on_with(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    class KilledHere(BaseException):
        pass

    def dies() -> None:
        raise KilledHere

    wanted = oversight._wanted

    def until_then():  # type: ignore[no-untyped-def]
        for n, (what, act) in enumerate(wanted()):
            yield what, dies if n == after else act

    with monkeypatch.context() as patch:
        patch.setattr(oversight, "_wanted", until_then)
        with pytest.raises(KilledHere):
            put_oversight()
    assert ActRecord.objects.count() == after
    put_oversight()
    assert ActRecord.objects.count() == 9 and limits() == {"role": 2500, "treasurer": 25_000}
    assert current_timing(queue().pk).version == 1  # type: ignore[union-attr]
