"""Decisions are compared with what their person was allowed at that time, though the rows say so no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from approvals.models import Approval, Decision
from approvals.queue_models import Queue
from approvals.queues import acts
from approvals.queues.acts import QueueChangeBody
from durableagents.models import ApiKey
from ledger.accounts import ACCOUNT
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.protected import confirm, registry, seal
from ledger.verification.runs import verify
from tests.integration.api.conftest import issue_key
from tests.integration.approvals.setup import WHY, asked, boss, say, somebody
from tests.integration.approvals.test_stages import FINANCE
from tests.integration.approvals.timing import make_late
from tests.integration.runs.stage import Stage
from tests.tampering import tamper
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def approval(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, tools)


def close_account(by: Actor) -> None:
    """Close the account, and open it again without a record and with a code."""
    user = User.objects.get(pk=by.person)
    user.is_active = False
    user.save()
    tamper("UPDATE auth_user SET is_active = true WHERE id = %s", by.person)
    seal(ACCOUNT, by.person)


def take_role(by: Actor) -> None:
    user = User.objects.get(pk=by.person)
    (group,) = user.groups.all()
    user.groups.remove(group)
    tamper("INSERT INTO auth_user_groups (user_id, group_id) VALUES (%s, %s)", by.person, group.pk)
    seal(ACCOUNT, by.person)


def close_queue(by: Actor) -> None:
    acts.close("finance_po", by=boss(), justification=WHY)
    set_queue(state="open")


def give_queue_to_others(by: Actor) -> None:
    acts.change("finance_po", QueueChangeBody(role="approver_legal", justification=WHY), by=boss())
    set_queue(role=FINANCE)


def set_queue(**values: str) -> None:
    Queue.objects.filter(name="finance_po").update(**values)
    confirm(registry["approvals_queue"], Queue.objects.get(name="finance_po").pk)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("tamper", "named"),
    [
        (close_account, "was closed"),
        (take_role, f"did not have the role {FINANCE}"),
        (close_queue, "the queue finance_po was not open"),
        (give_queue_to_others, f"the role {FINANCE} did not decide at the queue finance_po"),
    ],
)
def test_decision_without_a_right_at_that_time_is_named(
    approval: Approval, tamper: Callable[[Actor], None], named: str
) -> None:
    fiona = somebody("fiona", FINANCE)
    tamper(fiona)
    say(approval, fiona)
    (problem,) = verify(approval.run_id).problems
    assert problem.startswith(f"decision {Decision.objects.get().pk}: ") and named in problem


def test_decision_in_time_is_not_named_whatever_came_later(approval: Approval) -> None:
    fiona = somebody("fiona", FINANCE)
    issue_key(User.objects.get(pk=fiona.person), "laptop")
    say(approval, replace(fiona, kind="key", auth="api_key"))
    ApiKey.objects.all().delete()
    take_role(fiona)
    close_account(fiona)
    close_queue(fiona)
    assert verify(approval.run_id).problems == []


@pytest.mark.parametrize("how", ["never issued", "revoked", "expired", "removed"])
def test_decision_with_a_key_that_had_ended_is_named(approval: Approval, how: str) -> None:
    fiona = somebody("fiona", FINANCE)
    if how != "never issued":
        issue_key(User.objects.get(pk=fiona.person), "laptop")
        key, long_ago = ApiKey.objects.get(), database_now() - timedelta(hours=1)
        if how == "removed":
            key.delete()
        else:
            setattr(key, "revoked_at" if how == "revoked" else "expires_at", long_ago)
            key.save()
        tamper("UPDATE ledger_accountrecord SET at = at - interval '1 hour'")
    say(approval, replace(fiona, kind="key", auth="api_key"))
    (problem,) = verify(approval.run_id).problems
    assert problem.endswith(f"account {fiona.person} had no valid API key")


def test_decision_after_the_deadline_is_named(approval: Approval) -> None:
    say(approval, somebody("fiona", FINANCE))
    make_late(approval, database_now() - timedelta(hours=1))
    assert [each for each in verify(approval.run_id).problems if each.endswith("was decided after its deadline")]
