"""Claiming, asking, delegating and standing approvals over HTTP, as an API client sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from approvals.api.schemas import ApprovalRow
from approvals.models import Approval
from runs.models import Run
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem, issue_key, person
from tests.integration.api.test_story import Story, story
from tests.integration.api.worker import working
from tests.integration.approvals.setup import WHY
from tests.integration.console.conftest import SHOP, buyer
from tests.integration.console.stage import question, settled
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)

__all__ = ["finance", "story"]

pytestmark = pytest.mark.django_db(transaction=True)
REASON = {"justification": WHY}


@pytest.mark.needs("casework")
def test_a_case_is_claimed_read_taken_over_and_let_go(story: Story, caller: Callable[[Any], Api]) -> None:
    story.start().to_the_gate()
    id = story.approval()["id"]
    finance, frank = caller("approver_finance"), Api(issue_key(person("frank", "approver_finance"), "test"))
    answer = finance.post(f"approvals/{id}/claim", {})
    (mine,) = ApprovalRow.model_validate(answer.json()).claims
    assert answer.status_code == 200 and (mine.by, mine.role) == ("key:approver_finance", "approver_finance")
    assert mine.until - mine.at == timedelta(minutes=10)
    (seen,) = caller("auditor").get("approvals?state=open").json()["results"]
    assert [one["id"] for one in seen["claims"]] == [mine.id]
    again = finance.post(f"approvals/{id}/claim", {"minutes": 60}).json()["claims"][0]
    assert again["id"] == mine.id and datetime.fromisoformat(again["until"]) > datetime.now(UTC) + timedelta(minutes=59)
    refused = frank.post(f"approvals/{id}/claim", {})
    assert is_problem(refused, 409, "claimed")
    problem = refused.json()
    assert problem["claims"] == [{"id": mine.id, "by": "key:approver_finance", "until": problem["claims"][0]["until"]}]
    assert is_problem(frank.post(f"approvals/{id}/release", {}), 409, "not-on-it")
    taken = frank.post(f"approvals/{id}/claim", {"take_over": mine.id}).json()["claims"]
    assert [one["by"] for one in taken] == ["key:frank"]
    gone = finance.post(f"approvals/{id}/release", {})
    assert is_problem(gone, 409, "not-on-it") and "key:frank took it over" in gone.json()["detail"]
    assert frank.post(f"approvals/{id}/release", {}).json()["claims"] == []
    finance.post(f"approvals/{id}/claim", {})
    decided = story.decide()
    assert decided.status_code == 200 and decided.json()["claims"] == []
    assert is_problem(finance.post(f"approvals/{id}/claim", {}), 409, "already-decided")


def put() -> Approval:
    """An open approval for finance, of a run that a shop started."""
    run = lifecycle.start("buyer@1.0.0", {"item": "chairs", "amount": 5000}, by=SHOP)
    with working():
        settled(run, "waiting_human")
    return question(run)


@pytest.fixture
def case() -> Iterator[str]:
    with buyer():
        yield f"approvals/{put().id}"


@pytest.fixture
def finance(caller: Callable[[Any], Api]) -> Api:
    return caller("approver_finance")


@pytest.fixture
def ira() -> Api:
    return Api(issue_key(person("ira", "integrator"), "test"))


@pytest.mark.needs("casework")
def test_who_is_asked_sees_the_case_and_answers_and_reads_nothing_of_it(case: str, finance: Api, ira: Api) -> None:
    assert ira.get(case).status_code == 404
    assert ira.post(f"{case}/inquiries/0/answer", {"answer": "Yes, they do."}).status_code == 404
    response = finance.post(f"{case}/inquiries", {"to": "ira", "question": "Do you know them?"})
    assert response.status_code == 201 and response.json()["n"] == 0 and response.json()["stops_clock"] is False
    finance.post(f"{case}/inquiries", {"to": "approver_finance2", "question": "And you?"})
    assert ira.get(case).status_code == 200, ira.get(case).content
    seen = ira.get(case).json()
    assert seen["hidden"] is True and seen["arguments"] is None and seen["evidence"] == [] and seen["why"] == ""
    assert [each["question"] for each in seen["inquiries"]] == ["Do you know them?"]
    assert ira.get(f"runs/{seen['run_id']}").status_code == 404, "the case alone, and not its run"
    assert (
        ira.post(f"{case}/decision", {"verdict": "approve", "plan_hash": seen["plan_hash"], **REASON}).status_code
        == 403
    )
    assert ira.post(f"{case}/inquiries/0/answer", {"answer": ""}).status_code == 422
    answered = ira.post(f"{case}/inquiries/0/answer", {"answer": "For ten years."})
    assert answered.status_code == 200 and answered.json()["outcome"] == "answered"
    again = ira.post(f"{case}/inquiries/0/answer", {"answer": "For eleven."})
    assert again.status_code == 409 and again.json()["code"] == "already-ended"
    (row,) = finance.get(case).json()["inquiries"]
    assert (row["answer"], row["ended_by"], row["is_authentic"]) == ("For ten years.", "key:ira", True)
    assert ira.get(case).status_code == 200, "what one answered can still be read"


@pytest.mark.needs("casework")
def test_who_has_it_reads_it_and_decides_it_and_no_other(case: str, finance: Api, ira: Api) -> None:
    handed = finance.post(f"{case}/delegations", {"to": "ira", **REASON})
    assert handed.status_code == 201 and handed.json()["to"] == "ira"
    seen = ira.get(case).json()
    assert seen["hidden"] is False and seen["arguments"]["amount"] == 5000
    assert [each["to"] for each in seen["delegations"]] == ["ira"]
    handing_on = ira.post(f"{case}/delegations", {"to": "approver_finance", **REASON})
    assert handing_on.status_code == 403 and "can't delegate it further" in handing_on.json()["detail"]
    decided = ira.post(f"{case}/decision", {"verdict": "approve", "plan_hash": seen["plan_hash"], **REASON})
    assert decided.status_code == 200 and decided.json()["state"] == "approved"
    assert decided.json()["decision"]["standing"]["deputy_of"]["name"] == "approver_finance"
    with working():
        settled(Run.objects.get(), "completed")
    assert ira.get(f"approvals/{put().id}").status_code == 404


@pytest.mark.needs("casework")
@each_case(
    "body",
    [
        {},
        {"to": 5, "question": "Why?"},
        {"to": "x" * 500, "question": "Why?"},
        {"to": "ira", "question": "x" * 9000},
        {"to": "ira", "question": "a\x00b"},
        {"to": "ira\u202e", "question": "Why?"},
        {"to": "ira", "question": "Why?", "n": 1},
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(case: str, finance: Api, ira: Api, body: Any) -> None:
    answer = finance.post(f"{case}/inquiries", body)
    assert answer.status_code in (400, 422), answer.content
    assert Approval.objects.get().inquiries.count() == 0


def decision(granted_case: Approval, **again: Any) -> dict[str, Any]:
    until = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    fields = {"times": 1, "until": until} | again
    return {"verdict": "approve", "plan_hash": granted_case.plan_hash, "again": fields, **REASON}
