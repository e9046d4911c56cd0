"""Being on a case over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from approvals.api.schemas import ApprovalRow
from approvals.models import Claim
from tests.integration.api.conftest import Api, is_problem, issue_key, person
from tests.integration.api.test_story import Story, story

__all__ = ["story"]
pytestmark = pytest.mark.django_db(transaction=True)


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


def test_who_may_not_decide_may_not_claim_and_what_does_not_fit_is_refused(
    story: Story, caller: Callable[[Any], Api]
) -> None:
    story.start().to_the_gate()
    id = story.approval()["id"]
    for role in ("approver_legal", "operator", "auditor"):
        assert is_problem(caller(role).post(f"approvals/{id}/claim", {}), 403, "forbidden")
        assert is_problem(caller(role).post(f"approvals/{id}/release", {}), 409, "not-on-it")
    finance = caller("approver_finance")
    for body in (
        {"minutes": 0},
        {"minutes": 61},
        {"minutes": True},
        {"minutes": "5"},
        {"take_over": 0},
        {"take_over": 2**63},
        {"take_over": "1"},
        {"who": 1},
    ):
        assert is_problem(finance.post(f"approvals/{id}/claim", body), 422, "invalid-input"), body
    assert is_problem(finance.post(f"approvals/{id}/release", {"minutes": 1}), 422)
    assert is_problem(finance.post(f"approvals/{story.id}/claim", {}), 404)
    assert finance.post(f"approvals/{id}/claim", {"take_over": 2**53 - 1}).status_code == 200, (
        "nobody's, and there is room"
    )
    assert Claim.objects.count() == 1
