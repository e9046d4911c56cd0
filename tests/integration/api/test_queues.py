"""Queues, policies, calendars, deadlines and notifications over HTTP: administrators set them, everybody reads them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals.queue_models import Limit, Queue
from ledger.models import ActRecord
from tests.integration.api.conftest import Api, is_problem

WHY = {"justification": "as agreed"}
REASON = "as agreed with the works council"


def test_a_queue_is_added_limited_closed_and_removed(caller: Callable[[Any], Api]) -> None:
    boss, reader = caller("superuser"), caller("auditor")
    Group.objects.get_or_create(name="approver_refunds")
    body = {"name": "refunds", "title": "Refunds", "role": "approver_refunds", **WHY}
    assert boss.post("queues", body).status_code == 201
    made = boss.post("queues/refunds/limit", {"most": "50000.00", **WHY}).json()
    assert made["limits"][0]["most"] == "50000.000000" and made["limits"][0]["person"] is None
    assert boss.post("queues/refunds/limit", {"most": "-0.00", **WHY}).json()["limits"][0]["most"] == "0.000000"
    assert all(limit.is_authentic for limit in Limit.objects.all())
    assert "refunds" in [row["name"] for row in reader.get("queues").json()["results"]]
    assert boss.post("queues/refunds/close", WHY).json()["state"] == "closed"
    assert is_problem(boss.post("queues/refunds/close", WHY), 409, "illegal-state")
    assert boss.post("queues/refunds/open", WHY).json()["state"] == "open"
    assert boss.post("queues/refunds/lift", WHY).json()["limits"] == []
    assert boss.post("queues/refunds", {"title": "Paid back", **WHY}).json()["title"] == "Paid back"
    # Two administrators who read the same state: the second is told, and a repetition gets the first answer.
    headers = {"If-Match": reader.get("queues/refunds")["ETag"], "Idempotency-Key": "rename"}
    first = boss.post("queues/refunds", {"title": "Returned", **WHY}, headers=headers)
    assert first.json()["title"] == "Returned"
    other = headers | {"Idempotency-Key": "other"}
    assert is_problem(boss.post("queues/refunds", {"title": "Lost", **WHY}, headers=other), 412, "changed")
    again = boss.post("queues/refunds", {"title": "Returned", **WHY}, headers=headers)
    assert again.content == first.content and again["Idempotent-Replayed"] == "true"
    different = boss.post("queues/refunds", {"title": "Else", **WHY}, headers={"Idempotency-Key": "rename"})
    assert is_problem(different, 422, "idempotency-mismatch")
    assert boss.post("queues/refunds/remove", WHY).status_code == 200
    assert is_problem(reader.get("queues/refunds"), 404, "not-found")
    assert ActRecord.objects.filter(queue="refunds", by="key:superuser", role="admin", auth="api_key").count() == 9


def test_what_is_wrong_is_refused_by_field(caller: Callable[[Any], Api]) -> None:
    boss = caller("superuser")
    before = list(Queue.objects.values())
    for most in ("NaN", "-1", "Infinity", "1e30", True, "much", []):
        assert is_problem(boss.post("queues/legal/limit", {"most": most, **WHY}), 422)
    for change in ({"role": "operator"}, {"title": ""}, {"currency": "dollars"}, {"name": "x"}, {"title": "a\u202eb"}):
        assert is_problem(boss.post("queues/legal", change | WHY), 422)
    assert is_problem(boss.post("queues/legal/limit", {"most": "5"}), 422)
    assert is_problem(boss.post("queues/LEGAL/close", WHY), 404, "not-found")
    assert list(Queue.objects.values()) == before and not ActRecord.objects.exists()


BODY = {"name": "dear_things", "effect": "require", "queue": "legal", "condition": "cost > 5", "rule": "Ask", **WHY}


@pytest.mark.needs("policies")
def test_a_policy_is_put_in_force_changed_and_retired(caller: Callable[[Any], Api]) -> None:
    boss, reader = caller("superuser"), caller("integrator")
    made = boss.post("policies", BODY)
    assert made.status_code == 201 and (made.json()["version"], made.json()["is_in_force"]) == (1, True)
    rows = reader.get("policies").json()
    assert rows["problem"] == "" and {"policy", "code"} >= {row["source"] for row in rows["results"]}
    assert next(row for row in rows["results"] if row["name"] == "dear_things")["within_hours"] == 168
    change = {key: value for key, value in BODY.items() if key != "name"} | {"effect": "deny", "queue": "", "seen": 1}
    changed = boss.post("policies/dear_things", change).json()
    assert changed["version"] == 2
    assert {row["what"] for row in changed["versions"][0]["changes"]} == {"Effect", "Asks", "Within"}
    assert is_problem(boss.post("policies/dear_things", change), 409, "policy-changed")
    assert boss.post("policies/dear_things/retire", WHY).json()["is_in_force"] is False
    assert is_problem(boss.post("policies/dear_things/retire", WHY), 409, "policy-changed")
    assert is_problem(reader.get("policies/nothing"), 404, "not-found")
    assert ActRecord.objects.filter(by="key:superuser", role="admin", auth="api_key").count() == 3


pytestmark = pytest.mark.django_db
WEEK = dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), "09:00-12:00, 13:00-18:00")


@pytest.fixture
def admin(caller: Callable[[Any], Api]) -> Api:
    return caller("superuser")


def wrong(answer: Any) -> set[str]:
    assert answer.status_code == 422, answer.content
    return {each["field"].partition(".")[0] for each in answer.json()["errors"]}


@pytest.mark.needs("calendars")
def test_one_sets_ones_own_absence_and_an_administrator_anybodys(admin: Api, caller: Callable[[Any], Api]) -> None:
    approver = caller("approver_legal")
    name = User.objects.get(groups__name="approver_legal").username
    body = {"ends_at": (timezone.now() + timedelta(days=2)).isoformat(), "justification": REASON}
    made = approver.post("absences", body)
    assert made.status_code == 201 and made.json()["name"] == name
    assert admin.get("queues/legal/timing").json()["is_deserted"] is True
    assert caller("operator").post("absences", body | {"person": name}).status_code == 403
    assert caller("operator").post(f"absences/{made.json()['id']}/end", {"justification": REASON}).status_code == 403
    assert approver.post(f"absences/{made.json()['id']}/end", {"justification": REASON}).status_code == 200
    assert approver.post(f"absences/{made.json()['id']}/end", {"justification": REASON}).status_code == 409
    assert admin.get("queues/legal/timing").json()["is_deserted"] is False
    assert admin.post("absences", body | {"person": name}).status_code == 201
    assert "person" in wrong(caller("operator").post("absences", body)), "who decides nothing is not missed"
    assert "ends_at" in wrong(approver.post("absences", body | {"ends_at": "2020-01-01T00:00:00Z"}))


OWN = {"ways": {"opened": ["browser"]}, "zone": "Europe/Berlin", "quiet_from": "22:00", "quiet_until": "07:00"}


@pytest.mark.needs("notifications")
def test_each_sets_and_reads_their_own(caller: Callable[[Any], Api]) -> None:
    answer = caller("operator").post("notifications/settings", OWN)
    assert answer.status_code == 200, answer.content
    mine = caller("operator").get("notifications/settings").json()
    assert (mine["zone"], mine["quiet_until"], mine["ways"]["opened"]) == ("Europe/Berlin", "07:00", ["browser"])
    others = caller("auditor").get("notifications/settings").json()
    assert (others["zone"], others["ways"]["opened"]) == ("UTC", ["email", "push"])
    assert is_problem(caller("operator").post("notifications/settings", {"zone": "Nowhere"}), 422)
