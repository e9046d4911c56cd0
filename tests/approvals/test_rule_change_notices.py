"""Whoever may be the second person of a change of a rule is told of it, and nobody else."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from approvals.changes import listed
from approvals.outbox.models import Notice
from approvals.policies import acts as policies
from ledger.actors import Actor
from ledger.four_eyes import changes, guards
from ledger.four_eyes.guards import GuardsBody
from ledger.four_eyes.known import FAMILIES
from ledger.models import RuleChange
from ledger.web.tally import Tally
from runs.engine.limits.rules import Rule
from runs.services.limits import acts as limits
from tests.approvals.post import Postbox
from tests.approvals.setup import WHY, somebody
from tests.approvals.test_notices import deliver
from tests.approvals.test_rule_changes import anna, bert, proposed, rule
from tests.scale.test_reads import MOST_STATEMENTS

pytestmark = pytest.mark.django_db
__all__ = ["anna", "bert"]  # fixtures


@pytest.fixture
def guarded(anna: Actor, bert: Actor) -> None:
    for name, role in (("olga", "operator"), ("ada", "auditor"), ("fiona", "approver_finance")):
        somebody(name, role, email=f"{name}@example.org")
    guards.require(GuardsBody(families=list(FAMILIES), justification=WHY), by=anna)


def test_who_may_be_the_second_person_is_told_what_why_and_by_whom(
    guarded: None, anna: Actor, postbox: Postbox
) -> None:
    change = proposed(lambda: policies.create(rule(justification="See https://evil.example now."), by=anna))
    deliver()
    assert postbox.to == ["bert@example.org"], "not who proposed it, nor anybody who may not agree"
    assert postbox.mails[0]["Subject"] == "Rule change: policy orders"
    text = postbox.text()
    assert f"/changes/{change.pk}" in text and "Proposed by: user:anna" in text
    assert "https[:]//evil[.]example" in text and "https://evil.example" not in text
    deliver()
    assert len(postbox.mails) == 1


def test_what_operators_may_agree_to_is_told_to_operators(guarded: None, anna: Actor, postbox: Postbox) -> None:
    proposed(lambda: limits.set_limit("tool:pay", Rule(per_minute=5), by=anna, justification=WHY))
    deliver()
    assert sorted(postbox.to) == ["bert@example.org", "olga@example.org"]


def test_who_lost_the_right_before_it_is_sent_is_told_nothing(
    guarded: None, anna: Actor, bert: Actor, postbox: Postbox
) -> None:
    proposed(lambda: policies.create(rule(), by=anna))
    User.objects.filter(pk=bert.person).update(is_superuser=False, is_staff=False)
    deliver()
    assert postbox.to == []


def test_what_is_over_or_was_written_past_us_is_told_to_nobody(
    guarded: None, anna: Actor, bert: Actor, postbox: Postbox
) -> None:
    over = proposed(lambda: policies.create(rule(), by=anna))
    changes.refuse(over.pk, by=bert, justification="no")
    altered = proposed(lambda: policies.create(rule(name="more"), by=anna))
    RuleChange.objects.filter(pk=altered.pk).update(why="another reason")
    deliver()
    assert postbox.to == []
    assert set(Notice.objects.filter(kind="rule_change").values_list("state", "note")) == {
        ("over", "nobody can put it in force any more")
    }


def test_what_was_not_proposed_after_all_is_told_to_nobody(guarded: None, anna: Actor, postbox: Postbox) -> None:
    with transaction.atomic():
        proposed(lambda: policies.create(rule(), by=anna))
        transaction.set_rollback(True)
    deliver()
    assert postbox.to == [] and not Notice.objects.filter(kind="rule_change").exists()


def test_a_notice_of_no_change_at_all_stops_no_other(guarded: None, anna: Actor, postbox: Postbox) -> None:
    for n, about in enumerate(("", "no uuid", "\u202e", str(UUID(int=7)))):
        with transaction.atomic():
            Notice.objects.create(
                fact=f"forged {n}", kind="rule_change", about=about, at="2026-01-01T00:00Z", due_at="2026-01-01T00:00Z"
            )
    proposed(lambda: policies.create(rule(), by=anna))
    deliver()
    assert postbox.to == ["bert@example.org"]


def test_the_navigation_counts_what_waits_and_the_list_has_it_however_old_it_is(
    guarded: None, anna: Actor, bert: Actor
) -> None:
    first = proposed(lambda: policies.create(rule(), by=anna))
    for n in range(listed.PAGE + 1):
        later = proposed(partial(policies.create, rule(name=f"later_{n}"), by=anna))
        changes.refuse(later.pk, by=bert, justification="no")
    assert Tally(frozenset({"operator"})).badge("changes") == 1
    with CaptureQueriesContext(connection) as asked:
        shown = listed.newest(User.objects.get(username="bert"))
    assert len(asked) <= MOST_STATEMENTS, "however many there are"
    assert shown[0].row.pk == first.pk and len(shown) == 1 + listed.PAGE
