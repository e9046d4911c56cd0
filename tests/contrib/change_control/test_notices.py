"""Possible second persons of a rule change are notified, and nobody else."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from durableagents.contrib.change_control import services as changes
from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.models import RuleChange
from durableagents.contrib.change_control.setting import GuardsBody
from durableagents.contrib.notifications.models import Notice
from durableagents.contrib.policies import services as policies
from ledger.actors import Actor
from ledger.change_control import FAMILIES
from tests.contrib.change_control.test_rule_changes import anna, bert, proposed, rule
from tests.contrib.notifications.mail_server import Postbox
from tests.contrib.notifications.test_notices import deliver
from tests.integration.approvals.setup import WHY, somebody
from tests.rewriting import rewrite

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


def test_who_lost_the_right_before_it_is_sent_is_told_nothing(
    guarded: None, anna: Actor, bert: Actor, postbox: Postbox
) -> None:
    proposed(lambda: policies.create(rule(), by=anna))
    rewrite(User.objects.filter(pk=bert.person), is_superuser=False, is_staff=False)
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
        ("over", "it can no longer be applied")
    }
