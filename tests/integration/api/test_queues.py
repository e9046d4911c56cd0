"""Queues over HTTP: what an administrator sets is what everybody reads next, and nobody else sets anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import Group

from approvals.queue_models import Limit, Queue
from ledger.models import ActRecord
from tests.integration.api.conftest import Api, is_problem

WHY = {"justification": "as agreed"}


def test_a_queue_is_added_limited_closed_and_removed(caller: Callable[[Any], Api]) -> None:
    boss, reader = caller("superuser"), caller("auditor")
    Group.objects.get_or_create(name="approver_refunds")
    body = {"name": "refunds", "title": "Refunds", "role": "approver_refunds", **WHY}
    assert boss.post("queues", body).status_code == 201
    made = boss.post("queues/refunds/limit", {"most": "50000.00", **WHY}).json()
    assert made["limits"][0]["most"] == "50000.000000" and made["limits"][0]["person"] is None
    assert boss.post("queues/refunds/limit", {"most": "-0.00", **WHY}).json()["limits"][0]["most"] == "0.000000"
    assert all(limit.is_genuine for limit in Limit.objects.all())
    assert "refunds" in [row["name"] for row in reader.get("queues").json()["results"]]
    assert boss.post("queues/refunds/close", WHY).json()["state"] == "closed"
    assert is_problem(boss.post("queues/refunds/close", WHY), 409, "illegal-state")
    assert boss.post("queues/refunds/open", WHY).json()["state"] == "open"
    assert boss.post("queues/refunds/lift", WHY).json()["limits"] == []
    assert boss.post("queues/refunds", {"title": "Paid back", **WHY}).json()["title"] == "Paid back"
    assert boss.post("queues/refunds/remove", WHY).status_code == 200
    assert is_problem(reader.get("queues/refunds"), 404, "not-found")
    assert ActRecord.objects.filter(queue="refunds", by="key:superuser", role="admin", auth="api_key").count() == 8


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
