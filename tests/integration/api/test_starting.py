"""Starts over HTTP by key, time and signal, and bulk actions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from runs.models import Run
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem

KEYED = START | {"business_key": "invoice 0815"}


def in_hours(hours: float) -> str:
    return (timezone.now() + timedelta(hours=hours)).isoformat()


def test_a_key_that_lives_is_refused_and_the_answer_names_its_run(integrator: Api) -> None:
    first = integrator.post("runs", KEYED).json()
    assert first["business_key"] == "invoice 0815" and first["queued_behind"] is None
    refused = integrator.post("runs", KEYED)
    assert is_problem(refused, 409, "business-key-taken") and refused.json()["run"] == first["id"]
    joined = integrator.post("runs", KEYED | {"on_conflict": "join"})
    assert (joined.status_code, joined.json()["id"]) == (200, first["id"])
    assert joined["Location"].endswith(first["id"])


@pytest.mark.needs("search")
def test_a_queued_run_says_behind_whom_and_is_cancelled_as_any_other(integrator: Api) -> None:
    first = integrator.post("runs", KEYED).json()
    second = integrator.post("runs", KEYED | {"on_conflict": "queue"})
    assert second.status_code == 201 and second.json()["queued_behind"] == first["id"]
    third = integrator.post("runs", KEYED | {"on_conflict": "replace"}).json()
    assert third["queued_behind"] is None and third["state"] == "pending"
    for old in (first, second.json()):
        row = integrator.get(f"runs/{old['id']}").json()
        assert row["state"] == "cancelled" and row["error"] is None
        assert row["cancelled"] == {"by": "key:integrator", "why": "replaced by a new run of its key invoice 0815"}
    assert third["cancelled"] is None
    assert integrator.get("runs", q="invoice 0815").json()["results"][0]["id"] == third["id"]


def test_a_repeat_of_a_joined_start_is_the_same_answer(integrator: Api) -> None:
    integrator.post("runs", KEYED)
    body = KEYED | {"on_conflict": "join"}
    first, again = (integrator.post("runs", body, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, first.content) == (again.status_code, again.content) == (200, first.content)


def _moment(value: Any) -> Any:
    """Return `in 2 h` as a time; anything else unchanged."""
    found = re.fullmatch(r"in (-?[0-9]+) h", value) if isinstance(value, str) else None
    return value if found is None else in_hours(int(found[1]))


@each_case(
    ("body", "field"),
    [
        ({"on_conflict": "queue"}, "on_conflict"),
        ({"on_conflict": "perhaps", "business_key": "k"}, "on_conflict"),
        ({"business_key": ""}, "business_key"),
        ({"business_key": " k"}, "business_key"),
        ({"business_key": "k\u202e"}, "business_key"),
        ({"business_key": "k\nl"}, "business_key"),
        ({"business_key": "k" * 65}, "business_key"),
        ({"business_key": "schedule:1"}, "business_key"),
        ({"business_key": 7}, "business_key"),
        ({"business_key": "k", "on_conflict": "debounce"}, "debounce_seconds"),
        ({"debounce_seconds": 5}, "debounce_seconds"),
        ({"business_key": "k", "on_conflict": "debounce", "debounce_seconds": 0}, "debounce_seconds"),
        ({"business_key": "k", "on_conflict": "debounce", "debounce_seconds": 5, "start_at": "in 1 h"}, "start_at"),
        ({"start_at": 1_800_000_000}, "start_at"),
        ({"start_at": "soon"}, "start_at"),
        ({"start_at": "2026-11-22T09:00:00"}, "start_at"),
        ({"start_at": "in 9600 h"}, "start_at"),
        ({"start_at": "0001-01-01T00:00:00+14:00"}, "start_at"),
        ({"start_at": "9999-12-31T23:59:59-12:00"}, "start_at"),
        ({"start_before": "in -1 h"}, "start_before"),
        ({"start_before": "9999-12-31T23:59:59+00:00"}, None),
        ({"start_before": "9999-12-31T23:59:59-14:00"}, "start_before"),
        ({"start_before": "1900000000"}, "start_before"),
        ({"start_before": "+1.9e9"}, "start_before"),
        ({"start_at": "in 2 h", "start_before": "in 1 h"}, "start_before"),
        ({"signal": {"name": "NO NAME"}}, "name"),
        ({"signal": "go"}, "signal"),
        ({"signal": {}}, "signal.name"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(integrator: Api, body: dict[str, Any], field: str | None) -> None:
    answer = integrator.post("runs", START | {name: _moment(value) for name, value in body.items()})
    if field is None:
        assert answer.status_code == 201
        return
    assert is_problem(answer, 422) and field in [each["field"] for each in answer.json()["errors"]], answer.json()
    assert not Run.objects.exists()


def bulk(api: Api, runs: Any, key: str | None = "b") -> Any:
    return api.post("runs/bulk", {"runs": runs}, headers={"Idempotency-Key": key} if key else {})


def test_each_of_many_is_started_or_says_why_not(integrator: Api) -> None:
    answer = bulk(integrator, [KEYED, KEYED, START | {"input": {}}, 7, START, {"agent": "nobody", "input": {}}])
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [one["status"] for one in results] == [201, 409, 422, 422, 201, 422]
    assert results[1]["problem"]["run"] == results[0]["run"]["id"]
    assert results[2]["problem"]["errors"][0]["field"] == "input.item"
    assert Run.objects.count() == 2
    first, again = (bulk(integrator, [START, START], key="c") for _ in range(2))
    assert again.json() == first.json() and Run.objects.count() == 4
    assert "Idempotent-Replayed" not in first and again["Idempotent-Replayed"] == "true"


def test_many_without_a_key_of_the_request_are_refused(integrator: Api) -> None:
    assert is_problem(bulk(integrator, [START], key=None), 400) and not Run.objects.exists()


pytestmark = pytest.mark.django_db
