"""Taking a standing grant back where more than its own yes is asked: what it gave and no call has used lets nothing
through, however many others say yes besides."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.granting import verification
from approvals.granting.acts import take_back
from approvals.granting.listed import one
from approvals.grants.models import StandingGrant
from approvals.models import Approval
from approvals.policies import acts as policies
from approvals.policies.bodies import NewPolicyBody
from approvals.services import decide
from ledger import events as e
from ledger.actors import Actor
from ledger.models import ActRecord
from runs.engine.agents import Agent
from runs.services import lifecycle
from tests.integration.approvals.granting import allowed, asks, given, paid, paying, swept
from tests.integration.approvals.setup import WHY, boss, somebody, sound
from tests.integration.approvals.test_granting import ROLE
from tests.integration.runs.stage import Stage, events
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def demanded(admin: Actor, queue: str, name: str = "law") -> None:
    """A policy asks a queue besides whenever something is paid."""
    said = {"name": name, "tool": "pay", "effect": "require", "queue": queue, "rule": f"{queue} looks at it"}
    policies.create(NewPolicyBody.model_validate(said | {"justification": WHY}), by=admin)


def answered_in_part(stage: Stage, agent: Agent) -> tuple[Approval, Approval]:
    """A call that a grant has answered for finance, and that legal is asked about: both questions."""
    case = asks(stage, agent, "pen 8000")
    swept()
    assert stage.drive() == "parked"
    legal = Approval.objects.get(run=case.run, state="open")
    assert legal.queue == "legal"
    return case, legal


def yes(approval: Approval, by: Actor) -> None:
    """Somebody approves it under their own role."""
    decide(approval.id, verdict="approve", plan_hash=approval.plan_hash, justification="as quoted", by=by)


@pytest.fixture(autouse=True)
def _exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification overlooks nothing because it was a moment ago."""
    monkeypatch.setattr(verification, "SLACK", timedelta(0))


def half_way(stage: Stage, tools: Toolbox, fiona: Actor) -> tuple[Actor, StandingGrant, Approval, Approval]:
    """A standing grant has answered finance, and a policy asks lena of legal besides: she, the grant, both
    questions."""
    admin, lena = boss(), somebody("lena", "approver_legal")
    allowed(admin)
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    assert stage.drive() == "completed" and paid(tools) == 1
    demanded(admin, "legal")
    return lena, grant, *answered_in_part(stage, agent)


def test_taken_back_while_others_are_asked_its_yes_lets_nothing_through(
    stage: Stage, tools: Toolbox, fiona: Actor
) -> None:
    lena, grant, case, legal = half_way(stage, tools, fiona)
    take_back(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    yes(legal, lena)
    assert stage.drive() == "parked" and paid(tools) == 1
    anew = Approval.objects.get(run=case.run, state="open")
    assert (anew.queue, anew.rule, anew.wait.n) == ("finance_po", case.rule, 2)
    told = f"standing grant {grant.pk} was taken back, and finance_po is asked again"
    assert told in str(anew.evidence) and f"Approved by {lena.ref}" in str(anew.evidence)
    swept()
    assert stage.drive() == "idle"
    sound(case.run)
    yes(anew, fiona)
    assert stage.drive() == "completed" and paid(tools) == 2
    assert [each.queue for each in events(case.run, e.ApprovalRequested)] == ["finance_po", "legal", "finance_po"]
    sound(case.run)
    (act,) = ActRecord.objects.filter(action="standing_revoke")
    assert act.after == {"lapsed": 1}


def test_what_went_out_with_others_word_besides_is_not_counted_as_unused(
    stage: Stage, tools: Toolbox, fiona: Actor
) -> None:
    lena, grant, case, legal = half_way(stage, tools, fiona)
    yes(legal, lena)
    assert stage.drive() == "completed" and paid(tools) == 2
    take_back(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    sound(case.run)
    (act,) = ActRecord.objects.filter(action="standing_revoke")
    assert act.after == {"lapsed": 0}


def test_the_queue_whose_yes_was_taken_back_is_asked_and_no_other(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    """A grant of what a policy asks, where the tool's own rule asks nobody and another policy's queue comes last."""
    admin, lena = boss(), somebody("lena", "approver_legal")
    allowed(admin, queue="legal")
    agent = paying(tools, when=lambda args: False)
    stage.start(agent, text="pen 5000")
    assert stage.drive() == "completed"
    demanded(admin, "legal")
    grant = given(asks(stage, agent), lena)
    assert stage.drive() == "completed"
    legal = asks(stage, agent)
    swept()
    demanded(admin, "customer_refunds", name="more")
    assert stage.drive() == "parked"
    third = Approval.objects.get(run=legal.run, state="open")
    assert third.queue == "customer_refunds"
    take_back(grant.pk, justification=WHY, by=lena, roles=["approver_legal"])
    yes(third, somebody("frank", ROLE))
    assert stage.drive() == "parked" and paid(tools) == 2
    anew = Approval.objects.get(run=legal.run, state="open")
    assert (anew.queue, anew.rule) == ("legal", legal.rule)
    yes(anew, lena)
    assert stage.drive() == "completed" and paid(tools) == 3
    sound(legal.run)


def test_a_yes_that_people_gave_anew_is_no_fault(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    assert stage.drive() == "completed"
    case = asks(stage, agent)
    swept()
    take_back(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    assert stage.drive() == "parked"
    yes(Approval.objects.get(run=case.run, state="open"), fiona)
    assert stage.drive() == "completed" and paid(tools) == 2
    sound(case.run)


@pytest.mark.parametrize("what", ["its own", "beside another"])
def test_one_that_is_used_up_is_taken_back_while_a_yes_of_it_lies_unused(
    stage: Stage, tools: Toolbox, fiona: Actor, what: str
) -> None:
    """On its page, too; and no longer once the call went out."""
    admin, olga, lena = boss(), somebody("olga", "operator"), somebody("lena", "approver_legal")
    allowed(admin)
    agent = paying(tools)
    grants = [given(asks(stage, paying(tools, name=name)), fiona, times=1) for name in ("payer", "second")]
    while stage.drive() == "completed":
        pass
    reader, cases = User.objects.get(pk=fiona.person), []
    if what == "beside another":
        demanded(admin, "legal")
        for name in ("payer", "second"):
            cases.append(answered_in_part(stage, agent if name == "payer" else paying(tools, name=name))[0])
    else:
        for name in ("payer", "second"):
            cases.append(asks(stage, paying(tools, name=name)))
            lifecycle.pause(cases[-1].run_id, by=olga, justification=WHY)
        swept()
    client = Client()
    client.force_login(reader)
    for grant in grants:
        assert one(grant.pk, reader).state == "used_up" and one(grant.pk, reader).may_end
        assert "Take it back" in client.get(reverse("standing_grant", args=[grant.pk])).content.decode()
    if what == "beside another":
        yes(Approval.objects.get(run=cases[1].run, state="open"), lena)
    else:
        lifecycle.resume(cases[1].run_id, by=olga, justification=WHY)
    assert stage.drive() == "completed" and paid(tools) == 3
    assert not one(grants[1].pk, reader).may_end
    assert "Take it back" not in client.get(reverse("standing_grant", args=[grants[1].pk])).content.decode()
    form = {"justification": WHY}
    assert client.post(reverse("standing_grant_ends", args=[grants[0].pk]), form).status_code == 302
    assert ActRecord.objects.get(action="standing_revoke").after == {"lapsed": 1}
    assert not one(grants[0].pk, reader).may_end
