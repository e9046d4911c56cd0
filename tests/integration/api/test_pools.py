"""Pools over HTTP: made, read, set anew, switched off, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from runs.models import Pool
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem

pytestmark = pytest.mark.django_db
WHY = {"justification": "for the test"}
RESEARCH = WHY | {
    "name": "Research",
    "scope": "tag",
    "whose": "team:research",
    "resource": "usd",
    "limit": "500.00",
    "period": "month",
    "zone": "Europe/Berlin",
}


def made(api: Api, **changed: Any) -> dict[str, Any]:
    answer = api.post("pools", RESEARCH | changed)
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


def test_a_pool_is_made_read_listed_set_anew_and_switched_off(operator: Api, auditor: Api) -> None:
    one = made(operator)
    assert (one["limit"], one["used"], one["left"], one["waiting"]) == ("500.00", "0.00", "500.00", 0)
    where = f"pools/{one['id']}"
    assert auditor.get(where).json() == one and auditor.get("pools").json()["results"] == [one]
    changed = operator.post(where, WHY | {"limit": 600, "name": "Research and reading"}).json()
    assert (changed["limit"], changed["name"]) == ("600.00", "Research and reading")
    assert is_problem(operator.post(where, WHY | {"limit": 700, "if_limit": "500.00"}), 409, "pool-moved")
    assert is_problem(operator.post(where, {"limit": 700}), 422, "justification-required")
    assert is_problem(operator.post(where, WHY), 422, "invalid-input")
    assert operator.post(f"{where}/off", WHY).json()["off_at"] is not None
    assert is_problem(operator.post(f"{where}/off", WHY), 409, "illegal-state")
    assert auditor.get("pools").json()["results"] == [] and auditor.get(where).json()["off_at"] is not None
    assert is_problem(auditor.get("pools/404"), 404)


def test_a_repeat_makes_one(operator: Api) -> None:
    first, again = (operator.post("pools", RESEARCH, headers={"Idempotency-Key": "p"}) for _ in range(2))
    assert first.content == again.content and Pool.objects.count() == 1


@each_case(
    ("wrong", "field"),
    [
        ({"limit": -1}, "limit"),
        ({"limit": "1e9999"}, "limit"),
        ({"limit": None}, "limit"),
        ({"limit": True}, "limit"),
        ({"resource": "eur"}, "resource"),
        ({"resource": "tool_calls", "limit": 1.5}, "limit"),
        ({"zone": "Berlin"}, "zone"),
        ({"period": "hour"}, "period"),
        ({"scope": "team"}, "scope"),
        ({"scope": "all"}, "whose"),
        ({"whose": ""}, "whose"),
        ({"whose": "a\u0000b"}, "whose"),
        ({"scope": "agent"}, "whose"),
        ({"scope": "person"}, "whose"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\u202eb"}, "name"),
        ({"currency": "EUR"}, "currency"),
    ],
)
def test_what_can_t_be_is_refused_by_name(operator: Api, wrong: dict[str, Any], field: str) -> None:
    answer = operator.post("pools", RESEARCH | wrong)
    assert answer.status_code == 422, answer.content
    assert field in [each["field"] for each in answer.json()["errors"]] and not Pool.objects.exists()
