"""A person who changed who decides after a question was asked can't decide it, by any way and under any name."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals.models import Approval
from approvals.queues import acts
from approvals.queues.acts import LimitBody, QueueChangeBody
from durableagents.contrib.calendars import deputies
from durableagents.contrib.calendars.services import DeputyBody
from durableagents.contrib.casework.delegations import delegate
from durableagents.contrib.change_control import services as changes
from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.setting import GuardsBody
from durableagents.contrib.policies import services as policies
from durableagents.contrib.policies.services import NewPolicyBody, PolicyBody
from durableagents.identity import rights
from ledger.acting import acting
from ledger.actors import Actor
from ledger.errors import Forbidden, Proposed
from tests.integration.approvals.setup import WHY, asked, away, buying, limited, say, somebody
from tests.integration.runs.stage import Stage
from tests.rewriting import rewrite
from tests.tampering import tamper
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
FINANCE = "approver_finance"


@pytest.fixture
def ada(stage: Stage) -> Actor:
    return somebody("ada", FINANCE, is_superuser=True, is_staff=True)


@pytest.fixture
def root(stage: Stage) -> Actor:
    return somebody("root", is_superuser=True, is_staff=True)


def refused(approval: Approval, by: Actor) -> None:
    with pytest.raises(Forbidden, match="You changed the members of this role"):
        say(approval, by)
    assert Approval.objects.get(pk=approval.pk).state == "open"


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


def test_a_role_that_is_named_again_is_one_that_was_given(stage: Stage, tools: Toolbox) -> None:
    mona = somebody("mona", "operator", "approver_x", is_superuser=True, is_staff=True)
    approval = asked(stage, tools)
    rewrite(Group.objects.filter(name=FINANCE), name="approver_old")
    with acting(mona):
        rewrite(Group.objects.filter(name="approver_x"), name=FINANCE)
    refused(approval, mona)


def test_a_policys_words_decide_nothing(stage: Stage, tools: Toolbox, ada: Actor, root: Actor) -> None:
    fields = {"agent": "", "tool": "pay", "effect": "require", "queue": "legal"}
    approval = asked(stage, tools)
    policies.create(NewPolicyBody(name="words", rule="large", **fields, justification=WHY), by=root)
    policies.change("words", PolicyBody(rule="of large sums", **fields, justification=WHY), by=ada)
    assert say(approval, ada).state == "approved"


def test_who_stands_in_elsewhere_changed_nothing_here(stage: Stage, tools: Toolbox, ada: Actor) -> None:
    somebody("fred", FINANCE, "approver_legal")
    approval = asked(stage, tools)
    stand_in(ada, "ada", queue="legal")
    assert say(approval, ada).state == "approved"


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


@pytest.mark.parametrize(("agent", "tool", "is_here"), [("", "pay", True), ("this", "", True), ("other", "pay", False)])
def test_who_changed_what_policies_ask_for_it_does_not_decide(
    stage: Stage, tools: Toolbox, ada: Actor, root: Actor, agent: str, tool: str, is_here: bool
) -> None:
    approval, other = asked(stage, tools), buying(tools)
    named = {"": "", "this": approval.run.agent, "other": other.name}[agent]
    fields = {"name": "board", "agent": named, "tool": tool, "effect": "require", "queue": "legal", "rule": "large"}
    policies.create(NewPolicyBody(**fields, justification=WHY), by=root)
    policies.retire("board", by=ada, justification=WHY)
    if is_here:
        refused(approval, ada)
    else:
        assert say(approval, ada).state == "approved"


def test_a_title_decides_nothing(stage: Stage, tools: Toolbox, ada: Actor) -> None:
    approval = asked(stage, tools)
    acts.change("finance_po", QueueChangeBody(title="Orders", justification=WHY), by=ada)
    assert say(approval, ada).state == "approved"


def test_what_was_set_before_is_nobodys_business(stage: Stage, tools: Toolbox, ada: Actor) -> None:
    limited(ada, "100000", person="ada")
    rights.set_roles(ada.person or 0, [FINANCE, "operator"], True, by=ada, justification=WHY)
    assert say(asked(stage, tools), ada).state == "approved"


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
