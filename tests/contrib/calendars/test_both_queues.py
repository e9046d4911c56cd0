"""Members of both the first and the escalation queue may use the rights of either; others only their own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.cases.amending import amend
from approvals.models import Approval, Decision, Seat
from approvals.services import actor_for_decision, decide
from durableagents import Gate
from durableagents.identity.auth import issue_key
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden
from tests.contrib.calendars.test_deadlines import put
from tests.contrib.calendars.timing import away, timing
from tests.integration.api.conftest import Api
from tests.integration.approvals.setup import boss, limited, signed_in, somebody, sound
from tests.integration.approvals.test_stages import buying as staged
from tests.integration.approvals.timing import SOON, sweep
from tests.integration.console.conftest import text_of
from tests.integration.runs.stage import Stage, events
from tests.world import Outside, Toolbox

pytestmark = pytest.mark.django_db
FINANCE, LEGAL = "approver_finance", "approver_legal"
SAID = {"justification": "as quoted"}


@pytest.fixture
def escalated(stage: Stage, tools: Toolbox) -> Approval:
    """$5,000 at finance (limit $1,000), escalated to legal because nobody answered."""
    admin = boss()
    timing(admin, on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    put(stage, tools, within=SOON, amount="amount USD", editable=["amount"])
    sweep()
    limited(admin, "1000")
    return Approval.objects.get(state="open")


@pytest.fixture
def bo() -> Actor:
    return somebody("bo", FINANCE, LEGAL)


def api_of(somebody: Actor) -> Api:
    return Api(issue_key(User.objects.get(pk=somebody.person), "test"))


def as_decider(approval: Approval, by: Actor) -> Actor:
    return actor_for_decision(approval, by, [FINANCE, LEGAL])


def said(verdict: str, role: str, queue: str | None) -> None:
    decision = Decision.objects.get()
    assert (decision.verdict, decision.role, (decision.standing or {}).get("queue")) == (verdict, role, queue)
    (event,) = events(decision.approval.run, e.ApprovalDecided)
    assert (event.role, event.by) == (role, decision.by)
    sound(decision.approval.run)


def test_inbox_marks_missed_deadlines_and_counts_within_the_readers_limit(escalated: Approval, bo: Actor) -> None:
    for who, is_beyond in ((somebody("fran", FINANCE), True), (somebody("lena", LEGAL), False), (bo, False)):
        client = signed_in(who)
        page = client.get("/inbox?late=1").content.decode()
        assert f"item-{escalated.id}" in page and "Deadline missed at" in page and "escalated to legal" in page
        assert ("Above your limit" in page) is is_beyond, who.name
        assert (re.search(r"data-total>(\d+)<", page) or [""])[1] == ("0" if is_beyond else "1"), who.name
        assert ("within your limit, 1 above it" in " ".join(page.split())) is is_beyond, who.name
        assert ("waiting for you" in page) is not is_beyond, who.name
        needs_attention, _, _ = client.get("/").content.decode().partition('id="last-runs"')
        assert (str(escalated.id) in needs_attention) is not is_beyond, who.name
        case = client.get(f"/inbox/{escalated.id}").content.decode()
        assert 'id="missed"' in case and ('id="limit-note"' in case) is is_beyond
    Approval.objects.filter(pk=escalated.pk).update(escalated_to=None)
    assert f"item-{escalated.id}" not in signed_in(bo).get("/inbox?late=1").content.decode()


@pytest.mark.every(3)
@pytest.mark.parametrize("face", ["api", "page"])
@pytest.mark.parametrize(
    ("verdict", "role", "queue"), [("approve", LEGAL, "legal"), ("reject", FINANCE, None), ("fail", FINANCE, None)]
)
def test_who_decides_at_both_says_yes_where_they_may_and_no_where_it_was_asked_first(
    stage: Stage, escalated: Approval, bo: Actor, face: str, verdict: str, role: str, queue: str | None
) -> None:
    body = {"verdict": verdict, "plan_hash": escalated.plan_hash, **SAID}
    if face == "api":
        assert api_of(bo).post(f"approvals/{escalated.id}/decision", body).status_code == 200
    else:
        client = signed_in(bo)
        page = client.get(f"/inbox/{escalated.id}").content.decode()
        assert 'id="limit-note"' not in page and 'data-verdict="approve"' in page
        answer = client.post(f"/approvals/{escalated.id}/decision", body)
        assert answer.status_code == 302, text_of(answer)
    said(verdict, role, queue)
    assert stage.drive() == ("failed" if verdict == "fail" else "completed")
    sound(escalated.run)


def test_a_deputy_decides_at_the_further_queue(stage: Stage, escalated: Approval, outside: Outside) -> None:
    lena, bo = somebody("lena", LEGAL), somebody("bo", FINANCE)
    away(lena, "bo")
    by = as_decider(escalated, bo)
    decide(escalated.id, verdict="approve", plan_hash=escalated.plan_hash, by=by, **SAID)
    said("approve", LEGAL, "legal")
    assert Decision.objects.get().standing["deputy_of"]["name"] == "lena"
    assert stage.drive() == "completed" and len(outside.requests) == 1


def test_a_yes_at_the_further_queue_is_one_vote(stage: Stage, tools: Toolbox, bo: Actor, outside: Outside) -> None:
    admin = boss()
    timing(admin, on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    stage.start(staged(tools, Gate("finance_po", "large sums", amount="amount USD", within=SOON, quorum=2)))
    assert stage.drive() == "parked"
    sweep()
    limited(admin, "1000")
    row, lena = Approval.objects.get(), somebody("lena", LEGAL)
    body = {"verdict": "approve", "plan_hash": row.plan_hash, **SAID}
    assert api_of(bo).post(f"approvals/{row.id}/decision", body).json()["state"] == "open"
    assert api_of(lena).post(f"approvals/{row.id}/decision", body).json()["state"] == "approved"
    assert [vote.role for vote in events(row.run, e.ApprovalVoted)] == [LEGAL, LEGAL]
    assert {seat.person for seat in Seat.objects.all()} == {bo.person, lena.person}
    assert stage.drive() == "completed" and len(outside.requests) == 1
    sound(row.run)


@pytest.mark.parametrize(("amount", "role", "queue"), [(4000, LEGAL, "legal"), (900, FINANCE, None)])
def test_a_change_is_made_where_it_was_asked_first_and_approved_where_what_it_became_may_be(
    stage: Stage, escalated: Approval, bo: Actor, outside: Outside, amount: int, role: str, queue: str | None
) -> None:
    body = {"verdict": "approve", "plan_hash": escalated.plan_hash, "arguments": {"amount": amount}, **SAID}
    answer = api_of(bo).post(f"approvals/{escalated.id}/decision", body)
    assert answer.status_code == 200 and answer.json()["state"] == "approved", answer.content
    change, yes = Decision.objects.order_by("id")
    assert (change.verdict, change.role) == ("amend", FINANCE) and "queue" not in (change.standing or {})
    assert (yes.verdict, yes.role, (yes.standing or {}).get("queue")) == ("approve", role, queue)
    assert stage.drive() == "completed"
    assert [json.loads(request.body)["amount"] for request in outside.requests] == [amount]
    sound(escalated.run)


def test_a_change_stays_where_its_yes_needs_more_proof(stage: Stage, escalated: Approval, settings: Any) -> None:
    """With a second factor alone and as a deputy: the page asks for the proof and keeps the change."""
    lena, bo = somebody("lena", LEGAL), somebody("bo", FINANCE)
    away(lena, "bo")
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"second_factor_roles": (LEGAL,)})
    by = as_decider(escalated, bo)
    done = amend(escalated.id, plan_hash=escalated.plan_hash, arguments={"amount": 4000}, by=by, **SAID)
    assert done.approval.state == "open" and "second factor" in done.why_open
    assert [row.verdict for row in Decision.objects.all()] == ["amend"]
    sound(escalated.run)


def test_who_acts_under_a_role_of_neither_is_told_where_it_is_decided(escalated: Approval, bo: Actor) -> None:
    lena = somebody("lena", LEGAL, "operator")
    for by, found in ((bo, f"Only {FINANCE} decides in finance_po"), (lena, f"Only {LEGAL} decides in legal")):
        with pytest.raises(Forbidden, match=f"{found}; you act as operator"):
            decide(
                escalated.id, verdict="approve", plan_hash=escalated.plan_hash, by=replace(by, role="operator"), **SAID
            )
    assert Approval.objects.get().state == "open" and not Decision.objects.exists()


def test_a_decider_of_the_further_queue_alone_may_not_change_and_reads_why(escalated: Approval, bo: Actor) -> None:
    lena, why = signed_in(somebody("lena", LEGAL)), "Changes are made in finance_po, which decides first"
    page = lena.get(f"/inbox/{escalated.id}").content.decode()
    assert 'data-verdict="approve"' in page and "Change…" not in page
    form = lena.get(f"/approvals/{escalated.id}/changes")
    assert form.status_code == 200 and why in text_of(form) and 'id="changes"' not in form.content.decode()
    sent = {"plan_hash": escalated.plan_hash, "amount": "900", "step": "look"}
    refused = lena.post(f"/approvals/{escalated.id}/changes", sent)
    assert refused.status_code == 403 and why in text_of(refused)
    assert "Change…" in signed_in(bo).get(f"/inbox/{escalated.id}").content.decode()
    assert 'id="changes"' in signed_in(bo).get(f"/approvals/{escalated.id}/changes").content.decode()
