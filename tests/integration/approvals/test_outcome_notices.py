"""Operators are told that a word on an unknown outcome waits for a second one; who said it isn't, nor anybody else."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.outbox.models import Notice
from ledger.actors import Actor
from runs.models import Run
from runs.services.settling import agreeing
from tests.integration.approvals.post import Postbox
from tests.integration.approvals.setup import WHY, boss, somebody
from tests.integration.approvals.test_notices import deliver
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Stage, waiting
from tests.integration.runs.test_settling import DID_NOT, FAMILIES, guarded, refused_late, says
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann(stage: Stage) -> Actor:
    return somebody("ann", "operator", email="ann@example.org")


@pytest.fixture
def ben(stage: Stage) -> Actor:
    return somebody("ben", "operator", email="ben@example.org")


@pytest.fixture
def run(stage: Stage, tools: Toolbox, ann: Actor, ben: Actor, postbox: Postbox) -> Any:
    boss()
    somebody("second", is_superuser=True, is_staff=True)
    somebody("ada", "auditor", email="ada@example.org")
    somebody("fiona", "approver_finance", email="fiona@example.org")
    guarded(*FAMILIES)
    found = Situations(stage, tools).make("unknown")
    deliver()
    assert sorted(postbox.to) == ["ann@example.org", "ben@example.org"]
    postbox.mails.clear()
    postbox.to.clear()
    return found


def test_the_others_are_told_who_says_what(run: Run, ann: Actor, postbox: Postbox) -> None:
    says(run, ann)
    deliver()
    assert postbox.to == ["ben@example.org"]
    text = postbox.text()
    assert "Second word" in postbox.mails[0]["Subject"] and "user:ann: it happened" in text
    assert f"/runs/{run.pk}" in text and "seen there" not in text, "no receipt leaves in a mail"
    deliver()
    assert len(postbox.mails) == 1


def test_each_word_is_told_once_and_what_is_over_to_nobody(run: Run, ann: Actor, ben: Actor, postbox: Postbox) -> None:
    says(run, ann)
    says(run, ben, DID_NOT)
    deliver()
    assert postbox.to == ["ann@example.org"], "what ann had said doesn't stand any more"
    says(run, ann)
    agreeing.take_back(run.id, waiting(run)[0].pk, by=ann, justification=WHY)
    deliver()
    assert len(postbox.mails) == 1
    says(run, ann)
    says(run, ben)
    deliver()
    assert len(postbox.mails) == 1
    assert set(Notice.objects.filter(kind="outcome_said").values_list("state", flat=True)) == {"over", "addressed"}


def test_who_is_no_operator_any_more_is_told_nothing(run: Run, ann: Actor, ben: Actor, postbox: Postbox) -> None:
    says(run, ann)
    User.objects.get(pk=ben.person).groups.clear()
    deliver()
    assert postbox.to == []


def test_a_word_that_counts_no_more_is_told_to_nobody(
    run: Run, stage: Stage, ann: Actor, ben: Actor, postbox: Postbox
) -> None:
    says(run, ann)
    refused_late(stage, run)
    deliver()
    assert postbox.to == []
