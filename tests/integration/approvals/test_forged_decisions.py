"""What somebody put beside a question past us (a decision, a state, a plan, a deputy) is no fact, is told as what it
is, and answers nobody with an error of ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from approvals.deadlines import away as absences
from approvals.models import Absence, Approval, Decision
from approvals.queue_models import Deputy
from approvals.queues import acts, deputies
from approvals.queues.bodies import ProofBody
from approvals.services import AlreadyDecided, decide
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.verification.registers import verify_registers
from runs.models import Run, Wait
from tests.integration.api.conftest import Api, is_problem, issue_key
from tests.integration.approvals.setup import WHY, asked, away, boss, say, somebody
from tests.integration.approvals.test_amending import paying
from tests.integration.approvals.test_damaged import forge, forge_deputy
from tests.integration.approvals.test_stages import FINANCE, forged
from tests.integration.approvals.timing import make_late, sweep
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage, events
from tests.integration.runs.stories import as_superuser
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def reads(by: Actor) -> Reader:
    return Reader(User.objects.get(pk=by.person))


def calls(by: Actor) -> Api:
    return Api(issue_key(User.objects.get(pk=by.person), uuid4().hex))


# --- a decision -------------------------------------------------------------------------------------------------------


def test_an_expired_question_was_decided_by_nobody_whatever_a_row_says(stage: Stage, tools: Toolbox) -> None:
    approval, fiona, frank = asked(stage, tools), somebody("fiona", FINANCE), somebody("frank", FINANCE)
    make_late(approval)
    sweep()
    forged(approval, fiona, closes=True, person=None, at=database_now())
    page = reads(frank).read(f"/inbox/{approval.id}")
    assert "Expired. not genuine That user:fiona decided this" in page and "It decided nothing" in page
    assert "Expired by user:fiona" not in page and "Nobody answered." in page
    row = calls(frank).get(f"approvals/{approval.id}").json()
    assert (row["state"], row["decision"]["is_genuine"]) == ("expired", False)
    with pytest.raises(AlreadyDecided) as no:
        say(approval, frank)
    assert "fiona" not in no.value.detail


def test_what_was_decided_is_genuine_and_says_no_more_than_it_did(stage: Stage, tools: Toolbox) -> None:
    approval, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    say(approval, fiona)
    page = reads(fiona).read(f"/inbox/{approval.id}")
    assert "not genuine" not in page and "Approved by user:fiona as" in page
    assert calls(fiona).get(f"approvals/{approval.id}").json()["decision"]["is_genuine"] is True
    with pytest.raises(AlreadyDecided, match="approved by user:fiona"):
        say(approval, somebody("frank", FINANCE))


@pytest.mark.parametrize(
    "said",
    [
        {"verdict": "approve"},
        {"verdict": "reject"},
        {"verdict": "fail"},
        {"verdict": "approve", "arguments": {"amount": 1}},
    ],
)
def test_an_open_question_with_a_forged_decision_is_refused_in_words(
    stage: Stage, tools: Toolbox, said: dict[str, Any]
) -> None:
    stage.start(paying(tools))
    assert stage.drive() == "parked"
    approval, fiona, frank = Approval.objects.get(), somebody("fiona", FINANCE), somebody("frank", FINANCE)
    forged(approval, fiona, closes=True, person=None, at=database_now())
    page = reads(frank).read(f"/inbox/{approval.id}")
    assert "Open. not genuine" in page and "nobody can decide this while it is there" in page
    before = len(events(approval.run))
    body = {"plan_hash": approval.plan_hash, "justification": "as quoted"} | said
    answer = calls(frank).post(f"approvals/{approval.id}/decision", body)
    assert is_problem(answer, 409, "record-damaged") and "none of our processes wrote" in answer.json()["detail"]
    form = {name: text for name, text in body.items() if name != "arguments"}
    assert reads(frank).client.post(f"/approvals/{approval.id}/decision", form).status_code == 409
    assert Approval.objects.get().state == "open" and Decision.objects.count() == 1
    assert len(events(approval.run)) == before
    make_late(approval)
    sweep()
    assert Approval.objects.get(pk=approval.pk).state == "expired", "time takes it away"


def test_whoever_has_a_seat_by_a_forged_row_is_told_so(stage: Stage, tools: Toolbox) -> None:
    approval, fiona, frank = asked(stage, tools), somebody("fiona", FINANCE), somebody("frank", FINANCE)
    forged(approval, fiona)
    told = "says a row that was written past this installation"
    answer = calls(fiona).post(
        f"approvals/{approval.id}/decision",
        {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "x"},
    )
    assert is_problem(answer, 409, "already-voted") and told in answer.json()["detail"]
    assert told in reads(fiona).read(f"/inbox/{approval.id}")
    decide(approval.id, verdict="abstain", plan_hash=approval.plan_hash, justification="not mine", by=frank)
    assert told not in reads(frank).read(f"/inbox/{approval.id}"), "what somebody said is theirs"


# --- a question -------------------------------------------------------------------------------------------------------

STAGES = '"stages": [{"queue": "finance_po", "quorum": 1}, {"queue": "legal", "quorum": 2}]'
PLANS = [
    "{}",
    "[]",
    "5",
    '{"a": NaN}',
    "[" * 3000,
    "[" * 900 + "]" * 900,
    '{"tool": 5, "arguments": []}',
    f'{{"a": {"9" * 5000}}}',
    '{"evidence": [5], "documents": [5]}',
    f'{{{STAGES}, "stage": 1}}',
    f'{{{STAGES}, "stage": 2, "passed": 5}}',
    '{"stages": 5, "stage": 1}',
    '{"amount": {"value": "NaN", "currency": "USD"}, "proof": {"typed": {"amount": "x"}}}',
]


def put(run: Run, plan: str, state: str) -> Approval:
    """A question with its wait, as whoever has the application's rights in the database adds it."""
    now, id = database_now(), uuid4()
    wait = Wait.objects.create(
        id=uuid4(), run=run, slot=f"forged/{uuid4()}", kind="approval", opened_at=now, deadline=now + timedelta(days=1)
    )
    return Approval.objects.create(
        id=id,
        run=run,
        wait=wait,
        queue="finance_po",
        state=state,
        tool="pay",
        title="t",
        rule="r",
        plan=plan.encode(),
        plan_hash="sha256:x",
        requested_by="user:x",
        opened_at=now,
        deadline=now + timedelta(days=1),
        decided_at=None if state == "open" else now,
        case_id=id if "stages" in plan else None,
    )


@pytest.mark.parametrize("state", ["open", "astray", "approved"])
def test_a_question_that_nobody_could_have_put_takes_no_list_away(stage: Stage, tools: Toolbox, state: str) -> None:
    admin, fiona, olga = boss(), somebody("fiona", FINANCE), somebody("olga", "operator", "auditor")
    acts.prove("finance_po", ProofBody(type_amount=True, type_target=True, justification=WHY), by=admin)
    ours = asked(stage, tools)
    rows = [put(ours.run, plan, state) for plan in PLANS]
    for row, said in zip(rows, [f'{{"x": {"9" * 5000}}}', '"x"', "[5]", '{"on_timeout": 5}', "null"], strict=False):
        change = "UPDATE approvals_approval SET evidence = %s, documents = %s, timing = %s WHERE id = %s"
        as_superuser(change, said, said, said, row.pk)
    paths = [
        "/inbox",
        "/inbox?show=decided",
        "/",
        "/runs",
        f"/runs/{ours.run_id}",
        f"/runs/{ours.run_id}?tab=decisions",
    ]
    paths += [f"/inbox/{row.pk}" for row in rows]
    api = ["approvals", "approvals?state=open", f"runs/{ours.run_id}", f"runs/{ours.run_id}/why"]
    api += [f"approvals/{row.pk}" for row in rows]
    for by in (fiona, olga):
        reader, caller = reads(by), calls(by)
        assert {path: status for path in paths if (status := reader.get(path).status_code) not in (200, 403)} == {}
        assert {path: status for path in api if (status := caller.get(path).status_code) not in (200, 403, 404)} == {}
    listed = {row["id"] for row in calls(olga).get("approvals").json()["results"]}
    assert {str(row.pk) for row in [ours, *rows]} <= listed


def test_a_question_whose_plan_nobody_can_read_is_decided_by_nobody(stage: Stage, tools: Toolbox) -> None:
    admin, fiona = boss(), somebody("fiona", FINANCE)
    acts.prove("finance_po", ProofBody(type_amount=True, type_target=True, justification=WHY), by=admin)
    ours = asked(stage, tools)
    for plan in PLANS:
        row = put(ours.run, plan, "open")
        for verdict in ("approve", "reject"):
            said = {"verdict": verdict, "plan_hash": row.plan_hash, "justification": "as quoted"}
            answer = calls(fiona).post(f"approvals/{row.pk}/decision", said)
            assert answer.status_code == 409, (plan[:40], verdict, answer.content[:300])
    assert not Decision.objects.exists()


# --- a deputy, an absence ---------------------------------------------------------------------------------------------


def named(what: str) -> list[str]:
    (listed,) = [each for each in verify_registers() if each.name == "what is set up"]
    return [problem for problem in listed.problems if problem.startswith(what)]


def test_a_forged_deputy_who_is_ended_is_over_and_stays_forged(stage: Stage, tools: Toolbox) -> None:
    approval, ann, bob = asked(stage, tools), somebody("ann", FINANCE), somebody("bob", "operator")
    forge_deputy(ann.person, bob.person, "tomorrow")
    row = Deputy.objects.get()
    assert deputies.revoke(row.pk, by=ann, justification=WHY).revoked_at is not None
    row.refresh_from_db()
    assert row.revoked_at is not None and not row.is_genuine and len(named(f"deputy {row.pk} ")) == 1
    ours = away(ann, "bob")
    deputies.revoke(ours.pk, by=ann, justification=WHY)
    assert Deputy.objects.get(pk=ours.pk).is_genuine and named(f"deputy {ours.pk} ") == []
    assert approval.state == "open"


@pytest.mark.usefixtures("db")
def test_a_forged_absence_that_is_ended_is_over_and_stays_forged() -> None:
    ann = somebody("ann", FINANCE)
    forge(
        "INSERT INTO approvals_absence (person, starts_at, ends_at, reason, set_by, made_at, ended_by)"
        " VALUES (%s, now(), 'tomorrow', 'x', 'user:ann', now(), '')",
        ann.person,
    )
    row = Absence.objects.get()
    absences.come_back(row.pk, by=ann, justification=WHY)
    row.refresh_from_db()
    assert row.ended_at is not None and not row.is_genuine and len(named(f"absence {row.pk} ")) == 1
