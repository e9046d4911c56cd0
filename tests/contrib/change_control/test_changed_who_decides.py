"""A person who changed who decides after a question was asked can't decide it, by any way and under any name."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from approvals.queues import acts
from approvals.queues.acts import LimitBody
from durableagents.contrib.change_control import services as changes
from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.setting import GuardsBody
from durableagents.identity import rights
from ledger.acting import acting
from ledger.actors import Actor
from ledger.errors import Forbidden, Proposed
from tests.integration.approvals.setup import WHY, asked, limited, say, somebody
from tests.integration.approvals.test_changed_who_decides import FINANCE, refused
from tests.integration.runs.stage import Stage
from tests.tampering import tamper
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(stage: Stage) -> Actor:
    return somebody("ada", FINANCE, is_superuser=True, is_staff=True)


@pytest.fixture
def root(stage: Stage) -> Actor:
    return somebody("root", is_superuser=True, is_staff=True)


def test_the_second_person_of_a_change_has_made_it_too(stage: Stage, tools: Toolbox, ada: Actor, root: Actor) -> None:
    limited(root, "1", person="ada")
    guards.require(GuardsBody(families=["queues", "roles", "policies"], justification="two people"), by=root)
    approval = asked(stage, tools)
    with pytest.raises(Proposed) as proposed:
        acts.limit("finance_po", LimitBody(person="ada", most=None, justification=WHY), by=root)
    with pytest.raises(Forbidden, match="above your limit"):
        say(approval, ada)
    changes.apply(proposed.value.change, by=ada, justification=WHY)
    refused(approval, ada)
    # Agreeing to something else changes nothing here.
    other = somebody("other", FINANCE, is_superuser=True, is_staff=True)
    with pytest.raises(Proposed) as proposed:
        acts.limit("legal", LimitBody(person="ada", most=None, justification=WHY), by=root)
    changes.apply(proposed.value.change, by=other, justification=WHY)
    assert say(approval, other).state == "approved"


@pytest.mark.parametrize("way", ["alone", "as the second", "by another", "by a provider"])
def test_who_gave_themselves_the_role_does_not_decide_what_was_asked_before(
    stage: Stage, tools: Toolbox, root: Actor, way: str
) -> None:
    mona = somebody("mona", "operator", is_superuser=True, is_staff=True)
    assert mona.person is not None
    given = {"user_id": mona.person, "roles": ["operator", FINANCE], "is_admin": True, "justification": WHY}
    if way == "as the second":
        guards.require(GuardsBody(families=["roles"], justification="two people"), by=root)
    approval = asked(stage, tools)
    if way == "alone":
        rights.set_roles(**given, by=mona)
    elif way == "as the second":
        with pytest.raises(Proposed) as proposed:
            rights.set_roles(**given, by=root)
        changes.apply(proposed.value.change, by=mona, justification=WHY)
    elif way == "by another":
        rights.set_roles(**given, by=root)
    else:  # the groups take effect at the next sign-in
        with acting(Actor("system", "oidc:corp", auth="sso", person=mona.person)):
            User.objects.get(pk=mona.person).groups.add(Group.objects.get(name=FINANCE))
    if way.startswith("by "):
        assert say(approval, mona).state == "approved"
    else:
        refused(approval, mona)


@pytest.mark.parametrize("told", ["{}", "7", "[7]", '[{"action": "queue_limit"}]', "null", '"x"'])
def test_a_change_that_other_hands_made_breaks_no_page(
    stage: Stage, tools: Toolbox, ada: Actor, root: Actor, told: str
) -> None:
    guards.require(GuardsBody(families=["queues", "roles"], justification="two people"), by=root)
    approval = asked(stage, tools)
    with pytest.raises(Proposed) as proposed:
        acts.limit("legal", LimitBody(person="ada", most=None, justification=WHY), by=root)
    changes.apply(proposed.value.change, by=ada, justification=WHY)
    tamper("UPDATE ledger_rulechange SET told = %s", told)
    assert say(approval, ada).state == "approved"
