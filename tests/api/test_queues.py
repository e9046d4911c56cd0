"""Queues over HTTP: what an administrator sets is what everybody reads next, and nobody else sets anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group

from approvals.queue_models import Deputy, Limit, Queue
from ledger.models import ActRecord
from ledger.web.roles import stand_ins
from runs.journal import wait_hooks
from tests.api.conftest import Api, is_problem, issue_key, person

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


def test_a_deputys_next_request_knows_and_so_does_every_process(caller: Callable[[Any], Api]) -> None:
    ann, bob = person("ann", "approver_legal"), person("bob", "operator")
    own, other = Api(issue_key(ann, "test")), Api(issue_key(bob, "test"))
    until = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    made = own.post("deputies", {"deputy": "bob", "ends_at": until, **WHY})
    assert made.status_code == 201 and (made.json()["principal"], made.json()["queue"]) == ("ann", "")
    wait_hooks.queues.forget()  # as another process, which has read nothing
    assert [row["deputy"] for row in other.get("queues/legal").json()["deputies"]] == ["bob"]
    assert "legal" in wait_hooks.queues.last.queues
    assert is_problem(other.post("deputies", {"deputy": "ann", "principal": "ann", "ends_at": until, **WHY}), 403)
    assert is_problem(own.post("deputies", {"deputy": "bob", "ends_at": "soon", **WHY}), 422)
    assert is_problem(caller("auditor").post(f"deputies/{made.json()['id']}/revoke", WHY), 403)
    assert other.post(f"deputies/{made.json()['id']}/revoke", WHY).json()["revoked_at"]
    assert Deputy.objects.get().is_genuine and not stand_ins(frozenset())


def test_the_reasons_that_a_queue_offers_are_set_read_and_ended(caller: Callable[[Any], Api]) -> None:
    boss, reader = caller("superuser"), caller("auditor")
    assert reader.get("queues/legal").json()["reasons"] == []
    said = ["Not in our terms.", "Dem Vertrag fehlt die Anlage."]
    assert boss.post("queues/legal/reasons", {"reasons": said, **WHY}).json()["reasons"] == said
    assert reader.get("queues/legal").json()["reasons"] == said
    for reasons in (None, "one", [1], [""], ["x" * 201], ["a\u202eb c"], ["two\nlines"], ["so"] * 21):
        assert is_problem(boss.post("queues/legal/reasons", {"reasons": reasons, **WHY}), 422), reasons
    assert is_problem(boss.post("queues/legal/reasons", WHY), 422)
    assert is_problem(boss.post("queues/legal/reasons", {"reasons": ["so it is"]}), 422)
    assert is_problem(boss.post("queues/nowhere/reasons", {"reasons": [], **WHY}), 404)
    assert reader.get("queues/legal").json()["reasons"] == said
    assert boss.post("queues/legal/reasons", {"reasons": [], **WHY}).json()["reasons"] == []
    assert list(ActRecord.objects.values_list("action", flat=True)) == ["queue_reasons"] * 2
