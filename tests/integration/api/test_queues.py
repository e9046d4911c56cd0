"""Queues, policies, calendars, deadlines and notifications over HTTP: administrators set them, everybody reads them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals.queue_models import Limit, Queue
from durableagents.contrib.calendars.models import Calendar, Timing
from durableagents.contrib.notifications.models import Delivery, Notice
from durableagents.contrib.policies.models import Policy
from ledger.models import ActRecord
from tests.cases import each_case
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


def test_a_policy_that_is_wrong_is_refused_by_field(caller: Callable[[Any], Api]) -> None:
    boss = caller("superuser")
    for wrong, field in (
        ({"name": "restore"}, "name"),
        ({"name": "A b"}, "name"),
        ({"condition": "cost >"}, "condition"),
        ({"effect": "maybe"}, "effect"),
        ({"within_hours": 0}, "within_hours"),
        ({"condition": ""}, "confirm"),
        ({"extra": 1}, "extra"),
    ):
        answer = boss.post("policies", BODY | wrong)
        assert is_problem(answer, 422), wrong
        assert field in [each["field"] for each in answer.json()["errors"]], (wrong, answer.json())
    assert not Policy.objects.exists() and not ActRecord.objects.exists()


pytestmark = pytest.mark.django_db
WEEK = dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), "09:00-12:00, 13:00-18:00")
DE = {"name": "DE", "zone": "Europe/Berlin", "week": WEEK, "justification": REASON}


@pytest.fixture
def admin(caller: Callable[[Any], Api]) -> Api:
    return caller("superuser")


def wrong(answer: Any) -> set[str]:
    assert answer.status_code == 422, answer.content
    return {each["field"].partition(".")[0] for each in answer.json()["errors"]}


def test_a_calendar_is_set_shown_set_again_and_removed(admin: Api) -> None:
    body = DE | {"holidays": [{"day": "2026-12-25", "name": "Christmas Day"}]}
    made = admin.post("calendars", body)
    assert made.status_code == 201 and made.json()["version"] == 1
    visible = admin.get("calendars/DE").json()
    assert visible["week"]["mon"] == WEEK["mon"] and visible["week"]["sun"] == "" and visible["is_authentic"]
    assert {"on a Friday afternoon", "at a weekend"} <= {each["what"] for each in visible["preview"]}
    friday = next(each for each in visible["preview"] if each["what"] == "on a Friday afternoon")
    assert friday["asked"][11:16] == "16:00" and friday["due"] > friday["asked"]
    assert admin.get("calendars/DE?hours=0").status_code == 400
    seen = {"headers": {"If-Match": admin.get("calendars/DE?hours=5")["ETag"]}}
    assert admin.post("calendars", body | {"zone": "Europe/Paris"}, **seen).status_code == 201
    for address, late in (
        ("calendars", body),
        ("calendars", body | {"name": "FR"}),
        ("calendars/DE/remove", {"justification": REASON}),
    ):
        assert is_problem(admin.post(address, late, **seen), 412, "changed"), address
    assert admin.get("calendars/FR").status_code == 404
    assert admin.post("calendars", body).json()["version"] == 3
    assert "week" in wrong(admin.post("calendars", body)), "nothing in it is new"
    assert admin.post("calendars", body | {"zone": "Europe/Vienna"}).json()["version"] == 4
    assert admin.post("queues/legal/timing", {"calendar": "DE", "justification": REASON}).status_code == 200
    assert admin.post("calendars/DE/remove", {"justification": REASON}).json()["code"] == "calendar-in-use"
    assert admin.get("calendars").json()["results"][0]["used_by"] == ["legal"]
    admin.post("queues/legal/timing", {"justification": REASON, "remind": [50]})
    assert admin.post("calendars/DE/remove", {"justification": REASON}).status_code == 200
    assert admin.get("calendars/DE").status_code == 404 and admin.get("calendars").json()["results"] == []
    assert admin.post("calendars", body).json()["version"] == 6
    acts = list(ActRecord.objects.order_by("id").values_list("action", flat=True))
    assert acts == ["calendar"] * 4 + ["queue_timing"] * 2 + ["calendar_remove", "calendar"]
    assert all(row.is_authentic for row in [*Calendar.objects.all(), *Timing.objects.all()])


@each_case(
    ("changed", "field"),
    [
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"week": {"mon": "09:00-25:00"}}, "week"),
        ({"week": {"mon": "always"}}, "week"),
        ({"week": {"someday": "09:00-17:00"}}, "week"),
        ({"name": "a b"}, "name"),
        ({"name": "x" * 41}, "name"),
        ({"name": "../x"}, "name"),
        ({"holidays": [{"day": "2026-02-30", "name": "never"}]}, "holidays"),
        ({"holidays": [{"day": "2026-12-25", "name": "one"}, {"day": "2026-12-25", "name": "two"}]}, "holidays"),
        ({"holidays": [{"day": "1026-12-25", "name": "old"}]}, "holidays"),
        ({"holidays": [{"day": "2026-12-25", "name": "\u202ehidden"}]}, "holidays"),
        ({"holidays": [{"day": "2026-12-25", "name": "x"}] * 401}, "holidays"),
    ],
)
def test_a_calendar_that_makes_no_sense_is_refused_by_its_field(admin: Api, changed: Any, field: str) -> None:
    assert field in wrong(admin.post("calendars", DE | changed))
    assert not Calendar.objects.exists() and not ActRecord.objects.exists()


@each_case(
    ("said", "field"),
    [
        ({"calendar": "XX"}, "calendar"),
        ({"on_timeout": "approve"}, "on_timeout"),
        ({"on_timeout": "escalate"}, "steps"),
        ({"steps": [{"to": "legal", "hours": 8}]}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "finance_po", "hours": 8}]}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "nowhere", "hours": 8}]}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "legal", "hours": 8}] * 2}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "legal", "hours": 0.001}]}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "legal", "hours": -1}]}, "steps"),
        ({"remind": [0]}, "remind"),
        ({"remind": [100]}, "remind"),
        ({"remind": [50, 50]}, "remind"),
        ({"remind": [10, 20, 30, 40, 50, 60]}, "remind"),
        ({"every_hours": 4}, "every_hours"),
        ({"at_once_if_away": True}, "at_once_if_away"),
    ],
)
def test_deadlines_that_make_no_sense_are_refused_by_their_field(admin: Api, said: Any, field: str) -> None:
    assert field in wrong(admin.post("queues/finance_po/timing", said | {"justification": REASON}))
    assert not Timing.objects.exists()


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


def told(name: str, fact: str, **more: Any) -> Delivery:
    now = timezone.now()
    notice = Notice.objects.create(fact=fact, kind="opened", at=now, due_at=now, state="addressed")
    person = get_user_model().objects.get(username=name).pk
    return Delivery.objects.create(notice=notice, by="email", person=person, due_at=now, made_at=now, **more)


def test_each_sets_and_reads_their_own(caller: Callable[[Any], Api]) -> None:
    answer = caller("operator").post("notifications/settings", OWN)
    assert answer.status_code == 200, answer.content
    mine = caller("operator").get("notifications/settings").json()
    assert (mine["zone"], mine["quiet_until"], mine["ways"]["opened"]) == ("Europe/Berlin", "07:00", ["browser"])
    others = caller("auditor").get("notifications/settings").json()
    assert (others["zone"], others["ways"]["opened"]) == ("UTC", ["email", "push"])
    assert is_problem(caller("operator").post("notifications/settings", {"zone": "Nowhere"}), 422)


def test_an_integrator_reads_what_they_were_told_and_nothing_of_others(caller: Callable[[Any], Api]) -> None:
    caller("integrator"), caller("operator")
    told("integrator", "a", state="sent")
    told("operator", "b", state="dead")
    assert [row["to"] for row in caller("integrator").get("notifications/deliveries").json()["results"]] == [
        "integrator"
    ]
    every = caller("auditor").get("notifications/deliveries").json()["results"]
    assert [row["to"] for row in every] == ["operator", "integrator"]
    first = caller("auditor").get("notifications/deliveries", limit=1).json()
    assert [row["to"] for row in caller("auditor").get(first["next"]).json()["results"]] == ["integrator"]
    dead = caller("auditor").get("notifications/deliveries", state="dead").json()["results"]
    assert [row["to"] for row in dead] == ["operator"]


def test_an_operator_sends_again_with_a_reason_and_only_what_is_over(caller: Callable[[Any], Api]) -> None:
    operator = caller("operator")
    dead, waiting = told("operator", "a", state="dead"), told("operator", "b")
    path = f"notifications/deliveries/{dead.pk}/replay"
    assert is_problem(operator.post(path, {}), 422)
    assert operator.post(path, {"justification": "It is up again."}).json()["state"] == "waiting"
    assert is_problem(operator.post(path, {"justification": "Once more."}), 409, "illegal-state")
    other = f"notifications/deliveries/{waiting.pk}/replay"
    assert is_problem(operator.post(other, {"justification": "Now."}), 409, "illegal-state")
    assert is_problem(caller("auditor").post(path, {"justification": "Now."}), 403)
