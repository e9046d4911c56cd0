"""Races: administrators who change one queue, and a decision while the decider's deputyship is revoked."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from approvals.authentic import authentic
from approvals.models import Decision
from approvals.queue_models import Limit, Queue
from approvals.queues import acts
from approvals.queues.acts import LimitBody, QueueBody, QueueChangeBody
from durableagents.contrib.calendars import deputies
from durableagents.contrib.calendars import services as deadlines
from durableagents.contrib.calendars.versions import current_timings
from durableagents.contrib.policies.models import Policy
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify
from tests.contrib.calendars.timing import away, calendar, timing
from tests.contrib.policies.test_policies import ordering, put
from tests.integration.approvals.setup import WHY, asked, boss, one_after_the_other, say, somebody
from tests.integration.runs.stage import Stage, at_once
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def body(name: str, title: str) -> QueueBody:
    Group.objects.get_or_create(name="approver_refunds")
    return QueueBody(name=name, title=title, role="approver_refunds", justification=WHY)


def records_hold(queue: str) -> list[ActRecord]:
    """Assert that each record begins where the one before it ended and is authentic."""
    rows = list(ActRecord.objects.filter(queue=queue).order_by("id"))
    of_queue = [row for row in rows if "state" in row.after]
    assert all(authentic(rows)) and [one for one in verify_registers() if one.problems] == []
    for before, after in pairwise(of_queue):
        assert after.before == before.after, (before.action, after.action)
    return rows


def test_of_two_queues_of_one_name_there_is_one(stage: Stage) -> None:
    admin = boss()
    both = [body("refunds", "One"), body("refunds", "Other")]
    answers = at_once(*(lambda given=given: acts.create(given, by=admin) for given in both))
    made, refused = sorted(answers, key=lambda one: isinstance(one, Exception))
    assert isinstance(made, Queue) and isinstance(refused, InvalidInput)
    assert Queue.objects.get(name="refunds").title == made.title and Queue.objects.get(name="refunds").is_authentic
    assert [row.action for row in records_hold("refunds")] == ["queue"]


def test_a_title_and_a_role_that_are_set_at_once_are_both_set(stage: Stage) -> None:
    """Each reads the row after locking it, so neither overwrites the other."""
    admin = boss()
    changes: list[dict[str, Any]] = [{"title": "Law"}, {"role": "approver_finance"}, {"needs_amount": True}]
    sent = [QueueChangeBody(justification=WHY, **change) for change in changes]
    answers = at_once(*(lambda given=given: acts.change("legal", given, by=admin) for given in sent))
    assert all(isinstance(one, Queue) for one in answers)
    row = Queue.objects.get(name="legal")
    assert (row.title, row.role, row.needs_amount, row.is_authentic) == ("Law", "approver_finance", True, True)
    assert len(records_hold("legal")) == 3


def test_of_many_who_close_a_queue_one_has(stage: Stage) -> None:
    admin = boss()
    answers = at_once(*(lambda: acts.close("legal", by=admin, justification=WHY) for _ in range(8)))
    assert [isinstance(one, Queue) for one in answers].count(True) == 1
    assert {type(one) for one in answers if not isinstance(one, Queue)} == {acts.QueueState}
    assert [row.action for row in records_hold("legal")] == ["queue_close"]


def test_closing_changing_and_removing_at_once_come_one_after_the_other(stage: Stage) -> None:
    admin = boss()
    acts.create(body("refunds", "Refunds"), by=admin)
    new = QueueChangeBody(title="Paid back", justification=WHY)
    answers = at_once(
        lambda: acts.close("refunds", by=admin, justification=WHY),
        lambda: acts.change("refunds", new, by=admin),
        lambda: acts.remove("refunds", by=admin, justification=WHY),
    )
    assert isinstance(answers[2], Queue) and all(isinstance(one, (Queue, NotFound)) for one in answers)
    row = Queue.objects.get(name="refunds")
    assert row.state == Queue.State.REMOVED and row.is_authentic
    assert records_hold("refunds")[-1].action == "queue_remove"


def test_of_limits_that_are_set_at_once_one_counts_and_none_is_lost(stage: Stage) -> None:
    admin = boss()
    wanted = [Decimal(n) for n in range(1, 9)]
    answers = at_once(
        *(lambda most=most: acts.limit("legal", LimitBody(most=most, justification=WHY), by=admin) for most in wanted)
    )
    assert all(isinstance(one, Queue) for one in answers)
    (row,) = Limit.objects.filter(ended_at__isnull=True)
    rows = records_hold("legal")
    assert Decimal(rows[-1].after["most"]) == row.most and all(each.is_authentic for each in Limit.objects.all())
    assert sorted(Decimal(each.after["most"]) for each in rows) == wanted and Limit.objects.count() == len(wanted)


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_deputy_waits_for_the_removal_of_their_place(stage: Stage, tools: Toolbox, is_kept: bool) -> None:
    """Both deciding and ending lock the deputyship, so one completes first."""
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "operator")
    approval, row = asked(stage, tools), away(ann, "bob")

    def take() -> None:
        deputies.end_deputyship(row.pk, by=ann, justification="back again")
        transaction.set_rollback(is_kept)

    decided = one_after_the_other(take, lambda: say(approval, bob))
    assert isinstance(decided, DurableAgentsError) is not is_kept
    assert Decision.objects.count() == is_kept and verify(approval.run_id).problems == []
    if not is_kept:
        assert isinstance(decided, Forbidden)


# One act of each pair removes what the other depends on.
PAIRS: dict[str, tuple[Callable[[Actor], object], Callable[[Actor], object]]] = {
    "calendar": (
        lambda by: deadlines.remove_calendar("DE", by=by, justification=WHY),
        lambda by: timing(by, calendar="DE"),
    ),
    "steps": (
        lambda by: acts.remove("refunds", by=by, justification=WHY),
        lambda by: timing(by, on_timeout="escalate", steps=[{"to": "refunds", "hours": 1}]),
    ),
    "policy": (lambda by: acts.remove("refunds", by=by, justification=WHY), lambda by: put(by, queue="refunds")),
}


@pytest.mark.parametrize("what", PAIRS)
@pytest.mark.parametrize("first", ["removed", "named"])
def test_what_is_being_removed_is_named_by_nobody(stage: Stage, tools: Toolbox, what: str, first: str) -> None:
    admin = boss()
    ordering(tools)
    acts.create(body("refunds", "Refunds"), by=admin)
    calendar(admin)
    remove, name = PAIRS[what]
    one, other = (remove, name) if first == "removed" else (name, remove)
    refused = one_after_the_other(lambda: one(admin), lambda: other(admin))
    assert isinstance(refused, InvalidInput if first == "removed" else acts.QueueInUse | deadlines.CalendarInUse)
    assert (len(current_timings()) + Policy.objects.count() == 0) is (first == "removed")


def test_two_queues_that_name_each_other_at_once_are_both_set(stage: Stage) -> None:
    """Both lock in the same order."""
    admin = boss()
    for hours in range(1, 6):
        found = at_once(
            *[
                partial(timing, admin, queue, on_timeout="escalate", steps=[{"to": to, "hours": hours}])
                for queue, to in (("finance_po", "legal"), ("legal", "finance_po"))
            ]
        )
        assert not any(isinstance(each, Exception) for each in found), found
    assert len(current_timings()) == 2
