"""The pages of queues, policies, calendars and deadlines: administrators set them up, everybody else reads."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.deadlines import deadlines
from approvals.models import Approval
from approvals.queue_models import Limit, Queue
from ledger.models import ActRecord
from tests.cases import each_case
from tests.integration.console.conftest import Forms, Reader

pytestmark = pytest.mark.django_db
WHY = "as agreed"


def boss() -> Reader:
    return Reader(User.objects.create_superuser("boss"))


@pytest.mark.needs("calendars")
def test_everybody_reads_and_an_administrator_sets_up(reader: Callable[..., Reader]) -> None:
    Group.objects.create(name="approver_refunds")
    sent = {"name": "refunds", "title": "Refunds", "role": "approver_refunds", "justification": WHY}
    assert boss().post("/queues/new", **sent).status_code == 302
    page = reader("auditor").client.get("/queues").content.decode()
    assert "Refunds" in page and "queue-form" not in page
    assert "out-title" not in page and "away-title" not in page, "an auditor decides nothing, so nobody stands in"
    assert "away-title" in reader("operator").client.get("/queues").content.decode()
    assert "queue-form" in Reader(User.objects.get(username="boss")).client.get("/queues").content.decode()
    assert reader("operator").post("/queues/new", **sent | {"name": "more"}).status_code == 403
    assert not Queue.objects.filter(name="more").exists()


def test_a_limit_is_set_and_lifted_on_the_queues_page() -> None:
    admin = boss()
    for most, kept in (("50,000", 50000), ("", None)):
        assert admin.post("/queues/of/legal/limits", person="", most=most, justification=WHY).status_code == 302
        assert Limit.objects.get(ended_at=None).most == kept
    for wrong in ("NaN", "-5", "much"):
        assert admin.post("/queues/of/legal/limits", person="", most=wrong, justification=WHY).status_code == 422
    assert admin.post("/queues/of/legal/lifts", person="", justification=WHY).status_code == 302
    assert not Limit.objects.filter(ended_at=None).exists()


@pytest.mark.needs("standing_approvals", "step_up")
@each_case(("typed", "kept"), [("50,000.50", "50000.50"), ("1,000", "1000"), ("999999999", "999999999")])
def test_a_sum_comes_back_from_the_page_as_it_was_sent(typed: str, kept: str) -> None:
    admin, page = boss(), "/queues/of/legal"
    sent = {
        f"{page}/proofs": {"minutes": "5", "above": typed},
        f"{page}/grants": {"times": "3", "days": "3", "sum": typed},
    }
    for at, fields in sent.items():
        form = Forms(admin.get(page)).sent[at]
        assert admin.post(at, **form | fields | {"justification": WHY}).status_code == 302
        again = Forms(admin.get(page)).sent[at] | {"justification": WHY}
        assert kept in again.values()
        assert admin.post(at, **again).status_code == 422, "nothing is changed by it"
    queue = Queue.objects.get(name="legal")
    assert queue.proof is not None and queue.again is not None
    assert [Decimal(queue.proof["above"]), Decimal(queue.again["most"])] == [Decimal(kept)] * 2


def test_a_hostile_name_is_shown_and_does_nothing() -> None:
    admin, name = boss(), "<script>alert(1)</script>\u202e"
    answer = admin.post("/queues/of/legal/limits", person=name, most="1", justification=WHY)
    assert answer.status_code == 422 and "<script>alert" not in answer.content.decode()


SENT = {
    "name": "dear_things",
    "agent": "buyer",
    "tool": "",
    "condition": "cost > 5",
    "effect": "require",
    "queue": "legal",
    "within_hours": "",
    "rule": "Dear things need the law",
    "justification": "as agreed",
}


def page(reader: Reader, path: str = "/policies") -> str:
    return str(reader.client.get(path).content.decode())


@pytest.mark.needs("policies")
def test_a_changed_version_shows_what_it_changed_and_who_did_it(reader: Callable[..., Reader]) -> None:
    admin = boss()
    admin.post("/policies/new", **SENT)
    form = page(admin, "/policies/of/dear_things")
    assert 'name="seen" value="1"' in form and 'value="cost &gt; 5"' in form and 'value="168"' in form
    sent = {key: value for key, value in SENT.items() if key != "name"} | {"seen": "1", "condition": "cost > 9"}
    assert admin.post("/policies/of/dear_things/versions", **sent).status_code == 302
    found = page(reader("auditor"), "/policies/of/dear_things")
    assert "<del>cost &gt; 5</del>" in found and "<ins>cost &gt; 9</ins>" in found and "user:boss" in found
    again = admin.post("/policies/of/dear_things/versions", **sent | {"condition": "cost > 11"})
    assert again.status_code == 409 and "is now at version 2" in again.content.decode()
    assert "cost &gt; 11" in again.content.decode(), "what was typed is kept"
    assert admin.post("/policies/of/dear_things/retirements", justification="not needed").status_code == 302
    assert "Retired" in page(admin) and "dear_things" in page(admin)
    assert [row.action for row in ActRecord.objects.order_by("id")] == ["policy", "policy_change", "policy_retire"]


@pytest.mark.needs("policies")
def test_hostile_words_are_inert(reader: Callable[..., Reader]) -> None:
    admin = boss()
    text = "<script>alert(1)</script> <b>{{ x }}"
    assert admin.post("/policies/new", **SENT | {"rule": text}).status_code == 302
    for path in ("/policies", "/policies/of/dear_things"):
        found = page(reader("auditor", name=f"a{len(path)}"), path)
        assert "<script>alert(1)" not in found and "&lt;script&gt;alert(1)" in found


DE = {"name": "DE", "zone": "Europe/Berlin", "holidays": "2026-12-25 Christmas Day\n2027-01-01", "justification": WHY}


@pytest.fixture
def admin(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


TERMS = {
    "on_timeout": "escalate",
    "minutes": 480,
    "is_working": True,
    "every": 0,
    "remind": [],
    "remind_at": [],
    "calendar": {"name": "DE", "version": 2, "zone": "Europe/Berlin"},
    "steps": [{"to": "legal", "minutes": 60}],
}


@pytest.mark.needs("calendars")
@each_case(
    ("more", "says"),
    [
        ({"timing": None}, ["If nobody decides by then, it is rejected."]),
        ({"timing": TERMS}, ["8 working hours, calendar DE (version 2, Europe/Berlin)", "legal for 1 working hour"]),
        ({"timing": TERMS, "escalated_to": ["legal"]}, ["Escalated: legal can decide too.", "it is rejected"]),
        ({"timing": TERMS | {"on_timeout": "remind"}, "reminded": 3}, ["There is no deadline", "Reminded 3 times."]),
        ({"timing": None, "state": "expired"}, ["The agent is told that nobody answered"]),
        ({"timing": {"on_timeout": 7, "steps": [None]}}, []),
    ],
)
def test_a_question_tells_its_time_in_plain_words(more: dict[str, Any], says: list[str]) -> None:
    texts = deadlines().texts(Approval(**({"state": "open"} | more)))
    whole = " ".join([texts.counted, texts.then, texts.so_far, texts.ended])
    assert all(each in whole for each in says), whole
