"""Policies over HTTP: what an administrator sets is what everybody reads next, and nobody else sets anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from approvals.models import Policy
from ledger.models import ActRecord
from tests.integration.api.conftest import Api, is_problem

WHY = {"justification": "as agreed"}
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


def test_what_is_wrong_is_refused_by_field(caller: Callable[[Any], Api]) -> None:
    boss = caller("superuser")
    for wrong, field in (
        ({"name": "restore"}, "name"),
        ({"name": "A b"}, "name"),
        ({"agent": "x"}, "agent"),
        ({"tool": "x"}, "tool"),
        ({"queue": "x"}, "queue"),
        ({"condition": "cost >"}, "condition"),
        ({"effect": "maybe"}, "effect"),
        ({"within_hours": 0}, "within_hours"),
        ({"rule": ""}, "rule"),
        ({"condition": ""}, "confirm"),
        ({"rule": "a\u202eb"}, "rule"),
        ({"extra": 1}, "extra"),
    ):
        answer = boss.post("policies", BODY | wrong)
        assert is_problem(answer, 422), wrong
        assert field in [each["field"] for each in answer.json()["errors"]], (wrong, answer.json())
    assert not Policy.objects.exists() and not ActRecord.objects.exists()
