"""Asking about an approval and handing it over, over HTTP: who is asked sees the case and no more than that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from approvals.models import Approval
from durableagents.identity.auth import issue_key
from runs.models import Run
from runs.services import lifecycle
from tests.integration.api.conftest import Api, person
from tests.integration.api.worker import working
from tests.integration.console.conftest import SHOP, buyer
from tests.integration.console.stage import question, settled

pytestmark = pytest.mark.django_db(transaction=True)
WHY = {"justification": "as agreed with the board"}


def put() -> Approval:
    """An open question to finance, of a run that a shop started."""
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
    """An integrator who sees none of it."""
    return Api(issue_key(person("ira", "integrator"), "test"))


def test_who_is_asked_sees_the_case_and_answers_and_reads_nothing_of_it(case: str, finance: Api, ira: Api) -> None:
    assert ira.get(case).status_code == 404
    assert ira.post(f"{case}/inquiries/0/answer", {"answer": "Yes, they do."}).status_code == 404
    asked = finance.post(f"{case}/inquiries", {"to": "ira", "question": "Do you know them?"})
    assert asked.status_code == 201 and asked.json()["n"] == 0 and asked.json()["stops_clock"] is False
    finance.post(f"{case}/inquiries", {"to": "approver_finance2", "question": "And you?"})
    assert ira.get(case).status_code == 200, ira.get(case).content
    seen = ira.get(case).json()
    assert seen["hidden"] is True and seen["arguments"] is None and seen["evidence"] == [] and seen["why"] == ""
    assert [each["question"] for each in seen["inquiries"]] == ["Do you know them?"]
    assert ira.get(f"runs/{seen['run_id']}").status_code == 404, "the case alone, and not its run"
    assert (
        ira.post(f"{case}/decision", {"verdict": "approve", "plan_hash": seen["plan_hash"], **WHY}).status_code == 403
    )
    assert ira.post(f"{case}/inquiries/0/answer", {"answer": ""}).status_code == 422
    answered = ira.post(f"{case}/inquiries/0/answer", {"answer": "For ten years."})
    assert answered.status_code == 200 and answered.json()["outcome"] == "answered"
    again = ira.post(f"{case}/inquiries/0/answer", {"answer": "For eleven."})
    assert again.status_code == 409 and again.json()["code"] == "already-ended"
    (row,) = finance.get(case).json()["inquiries"]
    assert (row["answer"], row["ended_by"], row["is_genuine"]) == ("For ten years.", "key:ira", True)
    assert ira.get(case).status_code == 200, "what one answered can still be read"


def test_who_has_it_reads_it_and_decides_it_and_no_other(case: str, finance: Api, ira: Api) -> None:
    handed = finance.post(f"{case}/delegations", {"to": "ira", **WHY})
    assert handed.status_code == 201 and handed.json()["to"] == "ira"
    seen = ira.get(case).json()
    assert seen["hidden"] is False and seen["arguments"]["amount"] == 5000
    assert [each["to"] for each in seen["delegations"]] == ["ira"]
    handing_on = ira.post(f"{case}/delegations", {"to": "approver_finance", **WHY})
    assert handing_on.status_code == 403 and "isn't handed on" in handing_on.json()["detail"]
    decided = ira.post(f"{case}/decision", {"verdict": "approve", "plan_hash": seen["plan_hash"], **WHY})
    assert decided.status_code == 200 and decided.json()["state"] == "approved"
    assert decided.json()["decision"]["standing"]["deputy_of"]["name"] == "approver_finance"
    with working():
        settled(Run.objects.get(), "completed")
    assert ira.get(f"approvals/{put().id}").status_code == 404


@pytest.mark.parametrize(
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
