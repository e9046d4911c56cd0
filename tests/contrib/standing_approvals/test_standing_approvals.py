"""Standing approvals: given, used, withdrawn, revoked, and forged."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pgtrigger
import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from approvals.models import Approval, Decision, Queue
from approvals.queues import acts as queues
from approvals.queues.acts import ProofBody
from approvals.services import decide
from durableagents import BusinessFailure, Context, End
from durableagents.contrib.notifications.models import Notice
from durableagents.contrib.notifications.recipients import read_subject
from durableagents.contrib.policies import services as policies
from durableagents.contrib.policies.services import NewPolicyBody
from durableagents.contrib.standing_approvals import answering
from durableagents.contrib.standing_approvals import verify as standing_verify
from durableagents.contrib.standing_approvals.models import StandingEnd, StandingGrant, StandingUse
from durableagents.contrib.standing_approvals.queries import find_one, find_page
from durableagents.contrib.standing_approvals.services import GrantOver, revoke
from durableagents.databases import RUNTIME_ROLE
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, NotFound
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify
from runs.engine.agents import Agent
from runs.models import Wait
from runs.services import lifecycle
from tests.cases import each_case
from tests.contrib.calendars.timing import away
from tests.contrib.change_control.test_rule_changes import agreed, anna, bert, guarded, proposed
from tests.contrib.standing_approvals.granting import (
    allowed,
    asks,
    given,
    paid,
    paying,
    refused,
    runs_out,
    state,
    swept,
)
from tests.integration.approvals.setup import WHY, boss, limited, say, somebody, sound
from tests.integration.runs.stage import Stage, at_once, dump, events
from tests.tampering import as_stored
from tests.world import Notes, Toolbox, agent_of

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]
__all__ = ["anna", "bert", "guarded"]  # fixtures
ROLE = "approver_finance"


@pytest.fixture
def agent(stage: Stage, tools: Toolbox) -> Agent:
    allowed(boss())
    return paying(tools)


@pytest.fixture
def grant(stage: Stage, agent: Agent, fiona: Actor) -> StandingGrant:
    return given(asks(stage, agent), fiona)


def asking() -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.approve("finance_po", title="May I?")).by)

    return agent_of(node)


def test_a_standing_yes_answers_as_often_as_allowed_then_people(
    stage: Stage, tools: Toolbox, fiona: Actor, agent: Agent
) -> None:
    first = asks(stage, agent)
    grant = given(first, fiona)
    assert stage.drive() == "completed"
    for n in (1, 2):
        case = asks(stage, agent, "pen 7000")
        swept()
        assert stage.drive() == "completed"
        (decided,) = events(case.run, e.ApprovalDecided)
        row = Decision.objects.get(approval=case)
        assert (decided.by, decided.role, decided.verdict) == ("user:fiona", ROLE, "approved")
        assert decided.payload["standing"] == {"grant": grant.pk, "use": n} == row.standing
        assert (row.auth, row.person, row.justification) == ("standing_grant", fiona.person, "the same every month")
        sound(case.run)
    third = asks(stage, agent, "pen 1000")
    swept()
    assert state(third.run) == "open" and stage.drive() == "idle"
    say(third, fiona)
    assert stage.drive() == "completed" and paid(tools) == 4
    sound(first.run, third.run)
    acts = {row.action: row for row in ActRecord.objects.exclude(action="queue_grants")}
    assert (acts["standing_grant"].by, acts["standing_grant"].after["times"]) == ("user:fiona", 2)
    assert events(first.run, e.ApprovalDecided)[0].payload["standing"]["again"]["times"] == 2


@pytest.mark.parametrize("what", ["name", "sum", "agent", "rule", "queue", "no amount", "fields", "title"])
def test_what_is_not_the_same_is_asked(stage: Stage, tools: Toolbox, fiona: Actor, what: str) -> None:
    allowed(boss())
    given(asks(stage, paying(tools)), fiona)
    assert stage.drive() == "completed"
    made: dict[str, Any] = {
        "agent": {"name": "another"},
        "rule": {"rule": "another one"},
        "queue": {"queue": "legal"},
        "no amount": {"amount": None},
        "fields": {"same": ["name", "amount"]},
    }
    text = {"name": "pencil 5000", "sum": "pen 20001"}.get(what, "pen 5000")
    if what == "title":
        tools.pay = replace(tools.pay, title="Pay it back")
    case = asks(stage, paying(tools, **({"version": "2.0.0"} | made.get(what, {}))), text)
    swept()
    assert state(case.run) == "open" and not StandingUse.objects.exists()


def test_the_next_version_of_an_agent_counts_as_the_same(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    given(asks(stage, paying(tools)), fiona)
    case = asks(stage, paying(tools, version="2.0.0"))
    swept()
    assert state(case.run) == "approved"


def test_without_named_fields_all_of_them_have_to_be_the_same(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    agent = paying(tools, same=())
    grant = given(asks(stage, agent), fiona)
    assert grant.fields == ["amount", "name"]
    other, same = asks(stage, agent, "pen 5001"), asks(stage, agent)
    swept()
    assert (state(other.run), state(same.run)) == ("open", "approved")


def test_the_sum_of_all_is_counted(stage: Stage, fiona: Actor, agent: Agent) -> None:
    given(asks(stage, agent), fiona, times=5, sum="12000")
    cases = [asks(stage, agent, f"pen {amount}") for amount in (7000, 6000, 5000)]
    swept()
    assert [state(case.run) for case in cases] == ["approved", "open", "approved"]
    assert sorted(use.amount for use in StandingUse.objects.all()) == [5000, 7000]


def test_of_one_run_it_counts_there_alone(stage: Stage, fiona: Actor, agent: Agent) -> None:
    given(asks(stage, agent), fiona, scope="run")
    case = asks(stage, agent)
    swept()
    assert state(case.run) == "open"


def test_it_is_over_in_time(stage: Stage, fiona: Actor, agent: Agent) -> None:
    first = asks(stage, agent)
    grant = given(first, fiona)
    case = asks(stage, agent)
    runs_out(grant)
    sound(first.run)
    swept()
    assert state(case.run) == "open"
    assert "it expired at" in str(refused(case, StandingGrant.objects.get())), "between the look and the yes too"


def test_withdrawn_it_answers_nothing_and_an_unused_yes_lapses(
    stage: Stage, tools: Toolbox, fiona: Actor, agent: Agent, grant: StandingGrant
) -> None:
    """Revoked in flight, between the approval and the call's intent."""
    assert stage.drive() == "completed"
    case, later = asks(stage, agent), asks(stage, agent, "pen 8000")
    lifecycle.pause(later.run_id, by=somebody("olga", "operator"), justification=WHY)
    swept()
    assert state(case.run) == "approved"
    assert stage.drive() == "completed" and paid(tools) == 2
    revoke(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    lifecycle.resume(later.run_id, by=Actor("user", "olga", role="operator"), justification=WHY)
    assert stage.drive() == "parked"
    renewed = Approval.objects.get(run=later.run, state="open")
    assert renewed.pk != later.pk and paid(tools) == 2
    text = f"beforehand by standing grant {grant.pk}, (approval {later.pk}): it was taken back, or expired, before"
    assert text in str(renewed.evidence)
    swept()
    assert state(later.run) == "open"
    sound(case.run, later.run)
    (act,) = ActRecord.objects.filter(action="standing_revoke")
    assert (act.by, act.role, act.queue, act.after) == ("user:fiona", ROLE, "finance_po", {"lapsed": 1})
    say(renewed, fiona)
    assert stage.drive() == "completed" and paid(tools) == 3
    sound(later.run)
    with pytest.raises(GrantOver, match="revoked by user:fiona"):
        revoke(grant.pk, justification=WHY, by=fiona, roles=[ROLE])


def test_who_may_take_it_back(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    """Its giver (also without the role by now), deciders of the queue, operators, administrators."""
    admin = boss()
    allowed(admin)
    agent = paying(tools)
    for by, roles, role in (
        (somebody("frank", ROLE), [ROLE], ROLE),
        (somebody("olga", "operator"), ["operator"], "operator"),
        (fiona, [], ROLE),
        (admin, [], "admin"),
    ):
        grant = given(asks(stage, agent), fiona)
        for other, held in ((somebody(f"lena{grant.pk}", "approver_legal"), ["approver_legal"]), (admin, ["auditor"])):
            other = replace(other, person=None) if other is admin else other
            with pytest.raises(Forbidden):
                revoke(grant.pk, justification=WHY, by=other, roles=held)
        assert revoke(grant.pk, justification=WHY, by=by, roles=roles).end is not None
        assert StandingEnd.objects.get(grant=grant).role == role
    with pytest.raises(NotFound):
        revoke(4711, justification=WHY, by=fiona, roles=[ROLE])


@pytest.mark.parametrize("what", ["role", "account", "limit", "queue closed", "started it", "proof", "policy"])
def test_it_reaches_no_further_than_its_giver_does_now(stage: Stage, tools: Toolbox, fiona: Actor, what: str) -> None:
    admin = boss()
    allowed(admin)
    agent = paying(tools)
    given(asks(stage, agent), fiona)
    assert stage.drive() == "completed"
    user = User.objects.get(pk=fiona.person)
    if what == "role":
        user.groups.remove(Group.objects.get(name=ROLE))
    elif what == "account":
        User.objects.filter(pk=user.pk).update(is_active=False)
    elif what == "limit":
        limited(admin, "4999", person="fiona")
    elif what == "proof":
        queues.prove("finance_po", ProofBody(minutes=5, justification=WHY), by=admin)
    elif what == "policy":
        fields = {"name": "law", "tool": "pay", "effect": "require", "queue": "legal", "rule": "law looks at it"}
        policies.create(NewPolicyBody.model_validate(fields | {"justification": WHY}), by=admin)
    by = fiona if what == "started it" else Actor("user", "shop", role="integrator", auth="session", person=None)
    run = lifecycle.start(agent.graph_id, {"text": "pen 5000"}, by=by)
    assert stage.drive() == "parked"
    if what == "queue closed":
        queues.close("finance_po", by=admin, justification=WHY)
    swept()
    if what == "policy":  # its own rule is answered; a policy's queue is not
        assert stage.drive() == "parked" and Approval.objects.get(run=run, state="open").queue == "legal"
    else:
        assert state(run) == "open" and not StandingUse.objects.exists()
    assert paid(tools) == 1
    sound(run)


@pytest.fixture
def bounded(stage: Stage, tools: Toolbox) -> Approval:
    allowed(boss(), sum="30000")
    return asks(stage, paying(tools))


@each_case(
    ("said", "words"),
    [
        ({"times": 6}, "“Number of calls” is more than 5"),
        ({"days": -1}, "“Expires” has passed"),
        ({"days": 31}, "“Expires” is after 2.* UTC, the latest that this queue allows"),
        ({"sum": "30001"}, "more than .30,000"),
        ({"sum": None}, "has an amount"),
    ],
)
def test_more_than_allowed_is_refused(bounded: Approval, fiona: Actor, said: dict[str, Any], words: str) -> None:
    before = dump()
    with pytest.raises(InvalidInput, match=words):
        given(bounded, fiona, **said)
    assert dump() == before


def test_nobody_allows_more_in_all_than_they_may_approve_at_once(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    admin = boss()
    allowed(admin)
    limited(admin, "10000", person="fiona")
    case, before = asks(stage, paying(tools)), dump()
    with pytest.raises(InvalidInput, match="than you may approve at once"):
        given(case, fiona, sum="10001")
    assert dump() == before
    given(case, fiona, sum="10000")


@pytest.mark.parametrize("what", ["nowhere", "stages", "proof", "no tool", "deputy", "stranger", "no account"])
def test_what_can_not_be_allowed_again(stage: Stage, tools: Toolbox, fiona: Actor, what: str) -> None:
    admin = boss()
    if what != "nowhere":
        allowed(admin)
    by, error = fiona, InvalidInput
    if what == "proof":
        queues.prove("finance_po", ProofBody(type_amount=True, justification=WHY), by=admin)
    case = asks(stage, asking() if what == "no tool" else paying(tools, **({"quorum": 2} if what == "stages" else {})))
    if what == "deputy":
        by, error = somebody("dora", ROLE), Forbidden
        away(fiona, "dora")
        User.objects.get(username="dora").groups.clear()
    elif what == "stranger":
        by, error = somebody("lena", "approver_legal"), Forbidden
    elif what == "no account":
        by, error = replace(fiona, person=None), Forbidden
    before = dump()
    with pytest.raises(error):
        given(case, by, **({"sum": None} if what == "no tool" else {}))
    assert dump() == before and not StandingGrant.objects.exists()


def test_two_sweepers_answer_once_and_never_more_than_allowed(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss(), times=10)
    agent = paying(tools)
    given(asks(stage, agent), fiona, times=7, sum="1000000")
    assert stage.drive() == "completed"
    cases = [asks(stage, agent) for _ in range(10)]
    troubles: list[Any] = []
    at_once(*[lambda: troubles.extend(answering.answer_questions([], float("inf"))) for _ in range(8)])
    swept()
    # On a busy machine one of eight may wait too long for a lock; the next sweep answers its question.
    assert all("lock timeout" in str(error) for _, _, error in troubles), troubles
    states = [state(case.run) for case in cases]
    assert (states.count("approved"), states.count("open")) == (7, 3)
    assert sorted(StandingUse.objects.values_list("n", flat=True)) == [*range(1, 8)]
    while stage.drive() == "completed":
        pass
    assert paid(tools) == 8
    sound(*[case.run for case in cases])


def test_what_was_tried_before_is_a_persons_to_answer(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    """The system refused it and an operator retries it after the revocation: a call with a history needs a person."""
    allowed(boss())
    agent, olga = paying(tools), somebody("olga", "operator")
    grant = given(asks(stage, agent), fiona)
    assert stage.drive() == "completed"
    tools.outside.trouble("pay", BusinessFailure("closed", code="closed"))
    case = asks(stage, agent)
    swept()
    assert stage.drive() == "failed"
    revoke(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    given(asks(stage, agent), fiona)
    lifecycle.retry(case.run_id, by=olga, justification="open again")
    while not Approval.objects.filter(run=case.run, state="open").exists():
        assert stage.drive() in ("parked", "completed")
    swept()
    assert state(case.run) == "open" and StandingUse.objects.count() == 1
    sound(case.run)


def test_what_is_paid_back_counts_as_much_as_what_is_paid(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    """A credit makes no room for more."""
    allowed(boss())
    agent = paying(tools, when=lambda args: True)
    given(asks(stage, agent), fiona, times=5, sum="12000")
    back, more = asks(stage, agent, "pen -7000"), asks(stage, agent, "pen 6000")
    swept()
    assert (state(back.run), state(more.run)) == ("approved", "open")


def test_how_far_it_may_go_is_set_by_two_people_where_two_set_queues(guarded: None, anna: Actor, bert: Actor) -> None:
    change = proposed(lambda: allowed(anna))
    assert Queue.objects.get(name="finance_po").again is None
    agreed(change, bert)
    row = Queue.objects.get(name="finance_po")
    assert row.again == {"times": 5, "days": 30} and row.is_authentic


@pytest.mark.parametrize(
    ("said", "field"),
    [({"times": 3, "days": 0}, "days"), ({"times": 0, "days": 3}, "times"), ({"times": 0, "sum": "5"}, "times")],
)
def test_bounds_that_say_half_of_it_are_refused(stage: Stage, said: dict[str, Any], field: str) -> None:
    admin = boss()
    allowed(admin)
    with pytest.raises(InvalidInput, match=f"^Invalid input: {field} "):
        allowed(admin, **({"days": 0} | said))
    with pytest.raises(InvalidInput, match="Nothing would change"):
        allowed(admin)
    with pytest.raises(Forbidden):
        allowed(somebody("fiona", ROLE))


def test_people_are_told_only_of_what_it_does_not_answer(stage: Stage, fiona: Actor, agent: Agent) -> None:
    given(asks(stage, agent), fiona, sum="6000")
    answered, left, other = asks(stage, agent), asks(stage, agent, "pen 5001"), asks(stage, agent, "ink 5000")
    due = {row.approval_id: row.due_at - row.at for row in Notice.objects.filter(kind="opened")}
    assert due[answered.pk] > timedelta(seconds=4) < due[left.pk] and due[other.pk] < timedelta(seconds=1)
    swept()
    assert (state(answered.run), state(left.run)) == ("approved", "open")
    assert read_subject(Notice.objects.get(kind="opened", approval_id=answered.pk)).obsolete_reason == "it is approved"
    assert read_subject(Notice.objects.get(kind="opened", approval_id=left.pk)).obsolete_reason == ""


def test_questions_that_were_open_before_it_are_left_to_people(stage: Stage, fiona: Actor, agent: Agent) -> None:
    """A person may be reading them."""
    before = asks(stage, agent)
    given(asks(stage, agent), fiona)
    swept()
    assert state(before.run) == "open"


def demanded(admin: Actor, queue: str, name: str = "law") -> None:
    fields = {"name": name, "tool": "pay", "effect": "require", "queue": queue, "rule": f"{queue} looks at it"}
    policies.create(NewPolicyBody.model_validate(fields | {"justification": WHY}), by=admin)


def answered_in_part(stage: Stage, agent: Agent) -> tuple[Approval, Approval]:
    """Return both questions of a call: finance's, answered by a grant, and legal's."""
    case = asks(stage, agent, "pen 8000")
    swept()
    assert stage.drive() == "parked"
    legal = Approval.objects.get(run=case.run, state="open")
    assert legal.queue == "legal"
    return case, legal


def yes(approval: Approval, by: Actor) -> None:
    decide(approval.id, verdict="approve", plan_hash=approval.plan_hash, justification="as quoted", by=by)


@pytest.fixture(autouse=True)
def _exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_verify, "SLACK", timedelta(0))


def half_way(stage: Stage, tools: Toolbox, fiona: Actor) -> tuple[Actor, StandingGrant, Approval, Approval]:
    """Return lena of legal, the grant that answered finance, and both questions."""
    admin, lena = boss(), somebody("lena", "approver_legal")
    allowed(admin)
    agent = paying(tools)
    grant = given(asks(stage, agent), fiona)
    assert stage.drive() == "completed" and paid(tools) == 1
    demanded(admin, "legal")
    return lena, grant, *answered_in_part(stage, agent)


def test_withdrawn_while_others_are_asked_its_yes_is_void(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    lena, grant, case, legal = half_way(stage, tools, fiona)
    revoke(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    yes(legal, lena)
    assert stage.drive() == "parked" and paid(tools) == 1
    renewed = Approval.objects.get(run=case.run, state="open")
    assert (renewed.queue, renewed.rule, renewed.wait.n) == ("finance_po", case.rule, 2)
    text = f"standing approval {grant.pk} was revoked, so finance_po is asked again"
    assert text in str(renewed.evidence) and f"Approved by {lena.ref}" in str(renewed.evidence)
    swept()
    assert stage.drive() == "idle"
    sound(case.run)
    yes(renewed, fiona)
    assert stage.drive() == "completed" and paid(tools) == 2
    assert [each.queue for each in events(case.run, e.ApprovalRequested)] == ["finance_po", "legal", "finance_po"]
    sound(case.run)
    (act,) = ActRecord.objects.filter(action="standing_revoke")
    assert act.after == {"lapsed": 1}


def test_what_went_out_with_others_votes_counts_as_used(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    lena, grant, case, legal = half_way(stage, tools, fiona)
    yes(legal, lena)
    assert stage.drive() == "completed" and paid(tools) == 2
    revoke(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    sound(case.run)
    (act,) = ActRecord.objects.filter(action="standing_revoke")
    assert act.after == {"lapsed": 0}


def test_the_queue_whose_yes_was_taken_back_is_asked_and_no_other(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    """A policy's grant, where the tool's own rule asks nobody and another policy's queue comes last."""
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
    revoke(grant.pk, justification=WHY, by=lena, roles=["approver_legal"])
    yes(third, somebody("frank", ROLE))
    assert stage.drive() == "parked" and paid(tools) == 2
    renewed = Approval.objects.get(run=legal.run, state="open")
    assert (renewed.queue, renewed.rule) == ("legal", legal.rule)
    yes(renewed, lena)
    assert stage.drive() == "completed" and paid(tools) == 3
    sound(legal.run)


@pytest.mark.parametrize("what", ["its own", "beside another"])
def test_a_used_up_one_is_withdrawn_with_its_unused_yes(stage: Stage, tools: Toolbox, fiona: Actor, what: str) -> None:
    """Also on its page, but not after the call went out."""
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
        assert [each if isinstance(each, bool) else each.state for each in find_one(grant.pk, reader)] == [
            "used_up",
            True,
        ]
        assert "Revoke" in client.get(reverse("standing_grant", args=[grant.pk])).content.decode()
    if what == "beside another":
        yes(Approval.objects.get(run=cases[1].run, state="open"), lena)
    else:
        lifecycle.resume(cases[1].run_id, by=olga, justification=WHY)
    assert stage.drive() == "completed" and paid(tools) == 3
    assert not find_one(grants[1].pk, reader)[1]
    assert "Revoke" not in client.get(reverse("standing_grant", args=[grants[1].pk])).content.decode()
    form = {"justification": WHY}
    assert client.post(reverse("standing_grant_ends", args=[grants[0].pk]), form).status_code == 302
    assert ActRecord.objects.get(action="standing_revoke").after == {"lapsed": 1}
    assert not find_one(grants[0].pk, reader)[1]


COLUMNS = (
    "approval_id, run_id, queue, tool, agent, is_of_run, same, fields, count, most, currency, until, person, by, role, "
    "reason, at, code"
)


def named() -> list[str]:
    return [problem for each in verify_registers() for problem in each.problems if "standing" in problem]


def copied(grant: StandingGrant, approval: Approval, **other: str) -> None:
    """Copy the row to another question, code included, with these columns changed."""
    text = ", ".join(other.get(name.strip(), name.strip()) for name in COLUMNS.split(", "))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO approvals_standinggrant ({COLUMNS}) SELECT {text} FROM approvals_standinggrant WHERE id = %s",
            [grant.pk],
        )


def test_the_applications_role_gives_uses_and_withdraws(stage: Stage, fiona: Actor, agent: Agent) -> None:
    first = asks(stage, agent)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {RUNTIME_ROLE}")
        grant = given(first, fiona)
    case = asks(stage, agent)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {RUNTIME_ROLE}")
        swept()
        revoke(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    assert state(case.run) == "approved"


@pytest.mark.parametrize("what", ["copied", "wider", "endless", "nobody's", "not JSON"])
def test_a_forged_grant_answers_nothing(stage: Stage, fiona: Actor, what: str, agent: Agent) -> None:
    grant = given(asks(stage, agent), fiona, times=1)
    other = asks(stage, agent)
    swept()
    assert state(other.run) == "approved" and stage.drive() == "completed"
    case = asks(stage, agent)
    copied(
        grant,
        case,
        approval_id=f"'{case.pk}'::uuid",
        at="at - interval '1 day'",
        **{
            "copied": {},
            "wider": {"count": "1000"},
            "endless": {"until": "'infinity'::timestamptz"},
            "nobody's": {"person": "10000000000"},
            "not JSON": {"fields": "'[1]'::jsonb", "code": "NULL"},
        }[what],
    )
    swept()
    assert state(case.run) == "open" and StandingUse.objects.count() == 1
    assert any("was added or changed outside the application" in problem for problem in named())
    assert any("no decision includes it" in problem for problem in verify(grant.run_id).problems)
    assert find_page(User.objects.get(username="boss"))


@pytest.mark.parametrize("amount", ["-1000000", "1", "NULL"])
def test_a_forged_use_stops_the_grant(stage: Stage, amount: str, agent: Agent, grant: StandingGrant) -> None:
    """A negative use would make room for more."""
    case = asks(stage, agent)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO approvals_standinguse (grant_id, n, approval_id, run_id, amount, at, code) "
            f"VALUES (%s, 9, %s, %s, {amount}, clock_timestamp(), NULL)",
            [grant.pk, grant.approval_id, grant.run_id],
        )
    swept()
    assert state(case.run) == "open"
    assert any("but no event records that" in problem for problem in verify(grant.run_id).problems)


def test_whatever_says_that_it_was_taken_back_takes_it_back(stage: Stage, agent: Agent, grant: StandingGrant) -> None:
    case = asks(stage, agent)
    StandingEnd.objects.create(grant=grant, by="user:x", role="operator", reason="x", at=grant.at)
    swept()
    assert state(case.run) == "open" and named()
    assert "revoked by user:x" in str(refused(case, grant)), "between the look and the yes too"


def test_a_question_that_was_made_to_look_the_same_is_not(
    stage: Stage, tools: Toolbox, agent: Agent, grant: StandingGrant
) -> None:
    """Grants are found by a column, but checked against the plan and the journal."""
    case = asks(stage, agent, "gold 5000")
    Approval.objects.filter(pk=case.pk).update(same=grant.same)
    swept()
    assert state(case.run) == "open" and "for another call" in str(refused(case, grant))
    assert any("same says" in problem for problem in verify(case.run_id).problems)
    with pgtrigger.ignore("approvals.Approval:question_is_frozen"):
        plan, its = bytes(grant.approval.plan), grant.approval.plan_hash
        Approval.objects.filter(pk=case.pk).update(**as_stored(Approval, plan=plan), plan_hash=its)
    swept()
    while stage.drive() not in ("idle", "waiting_human"):
        pass
    assert [each.tool for each in tools.outside.seen("pay")] == ["pay"], "the other one only"


def test_a_yes_that_lapsed_and_was_set_back_is_found(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    agent, olga = paying(tools), somebody("olga", "operator")
    grant = given(asks(stage, agent), fiona)
    case = asks(stage, agent)
    lifecycle.pause(case.run_id, by=olga, justification=WHY)
    swept()
    revoke(grant.pk, justification=WHY, by=fiona, roles=[ROLE])
    Wait.objects.filter(pk=case.wait_id).update(grant_expires_at=grant.until + timedelta(days=1))
    assert any("its approval ends at the wrong time" in problem for problem in verify(case.run_id).problems)
