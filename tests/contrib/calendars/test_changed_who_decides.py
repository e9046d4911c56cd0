"""A person who changed who decides after a question was asked can't decide it, by any way and under any name."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals.models import Approval
from durableagents.contrib.calendars import deputies
from durableagents.contrib.calendars.services import DeputyBody
from durableagents.contrib.casework.delegations import delegate
from durableagents.identity import rights
from ledger.actors import Actor
from ledger.errors import Forbidden
from tests.contrib.calendars.timing import away
from tests.integration.approvals.setup import WHY, asked, limited, say, somebody
from tests.integration.approvals.test_changed_who_decides import FINANCE, refused
from tests.integration.runs.stage import Stage
from tests.rewriting import rewrite
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(stage: Stage) -> Actor:
    return somebody("root", is_superuser=True, is_staff=True)


@pytest.fixture
def ada(stage: Stage) -> Actor:
    return somebody("ada", FINANCE, is_superuser=True, is_staff=True)


def stand_in(by: Actor, name: str, *, queue: str = "") -> None:
    ends = timezone.now() + timedelta(days=2)
    body = DeputyBody(deputy=name, principal="fred", queue=queue, ends_at=ends, justification=WHY)
    deputies.name_deputy(body, by=by)


def test_a_new_name_makes_nobody_another(stage: Stage, tools: Toolbox) -> None:
    eve = somebody("eve", "operator", is_superuser=True, is_staff=True)
    somebody("fred", FINANCE)
    approval = asked(stage, tools)
    stand_in(eve, "eve")
    rewrite(User.objects.filter(pk=eve.person), username="eva")
    refused(approval, Actor("user", "eva", role=FINANCE, auth="session", person=eve.person))


@pytest.mark.parametrize("how", ["a deputy", "one case"])
def test_nor_does_anybody_in_their_place(stage: Stage, tools: Toolbox, ada: Actor, how: str) -> None:
    """Someone raised their own limit since, and their deputy would decide by it."""
    somebody("fred", FINANCE)
    bob = somebody("bob", "operator")
    limited(ada, "1", person="ada")
    if how == "a deputy":
        away(ada, "bob", principal="ada")
    approval = asked(stage, tools)
    if how == "one case":
        delegate(approval.id, to="bob", justification=WHY, by=replace(ada, role=FINANCE))
    limited(ada, None, person="ada")
    with pytest.raises(Forbidden, match="ada, whose deputy you are, changed the members of this role"):
        say(approval, bob)
    assert Approval.objects.get(pk=approval.pk).state == "open"


def test_who_gives_the_role_to_whom_they_stand_in_for_gave_it_themselves(
    stage: Stage, tools: Toolbox, root: Actor
) -> None:
    pia = somebody("pia", "approver_legal")
    mona = somebody("mona", "operator", is_superuser=True, is_staff=True)
    away(mona, "mona", principal="pia")
    approval = asked(stage, tools)
    rights.set_roles(pia.person or 0, ["approver_legal", FINANCE], False, by=mona, justification=WHY)
    with pytest.raises(Forbidden):
        say(approval, mona)
    assert Approval.objects.get(pk=approval.pk).state == "open"
    assert say(approval, pia).state == "approved", "who was given it by another decides"


def test_who_stands_in_elsewhere_changed_nothing_here(stage: Stage, tools: Toolbox, ada: Actor) -> None:
    somebody("fred", FINANCE, "approver_legal")
    approval = asked(stage, tools)
    stand_in(ada, "ada", queue="legal")
    assert say(approval, ada).state == "approved"
