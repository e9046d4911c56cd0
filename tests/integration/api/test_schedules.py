"""Schedules over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runs.models import Schedule
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem

NIGHTLY = START | {"name": "Nightly", "cron": "30 6 * * mon-fri", "zone": "Europe/Berlin"}
WHY = {"justification": "for the test"}


def set_up(api: Api, **changed: Any) -> dict[str, Any]:
    answer = api.post("schedules", NIGHTLY | changed)
    assert answer.status_code == 201, answer.content
    return answer.json()


def test_a_schedule_is_set_read_listed_changed_paused_resumed_and_taken_away(integrator: Api, auditor: Api) -> None:
    one = set_up(integrator)
    assert len(one["next"]) == 3 and one["last"] == [] and one["missed"] == one["overlap"] == "skip"
    where = f"schedules/{one['id']}"
    assert auditor.get(where).json() == one and auditor.get("schedules").json()["results"] == [one]
    changed = integrator.post(where, NIGHTLY | {"cron": "@daily", "overlap": "queue"}).json()
    assert (changed["cron"], changed["overlap"], changed["id"]) == ("@daily", "queue", one["id"])
    paused = integrator.post(f"{where}/pause", WHY).json()
    assert paused["is_paused"] and paused["next"] == []
    assert is_problem(integrator.post(f"{where}/pause", WHY), 409, "illegal-state")
    assert is_problem(integrator.post(f"{where}/resume", {}), 422, "justification-required")
    assert len(integrator.post(f"{where}/resume", WHY).json()["next"]) == 3
    assert integrator.post(f"{where}/delete", WHY).status_code == 200
    assert is_problem(integrator.get(where), 404) and auditor.get("schedules").json()["results"] == []


def test_a_repeat_sets_one(integrator: Api) -> None:
    first, again = (integrator.post("schedules", NIGHTLY, headers={"Idempotency-Key": "s"}) for _ in range(2))
    assert first.content == again.content and Schedule.objects.count() == 1


@each_case(
    ("wrong", "field"),
    [
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": "hourly"}, "cron"),
        ({"cron": ""}, "cron"),
        ({"cron": 5}, "cron"),
        ({"zone": "Berlin"}, "zone"),
        ({"zone": ""}, "zone"),
        ({"missed": "maybe"}, "missed"),
        ({"overlap": "debounce"}, "overlap"),
        ({"input": {"item": ""}}, "input.item"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"budget": {"steps": -1}}, "budget.steps"),
        ({"start_at": "soon"}, "start_at"),
    ],
)
def test_what_could_start_nothing_is_refused_by_name(integrator: Api, wrong: dict[str, Any], field: str) -> None:
    answer = integrator.post("schedules", NIGHTLY | wrong)
    assert is_problem(answer, 422, "invalid-input"), answer.json()
    assert field in [each["field"] for each in answer.json()["errors"]] and not Schedule.objects.exists()


def test_what_is_another_integrators_is_an_operators_to_change(
    integrator: Api, operator: Api, caller: Callable[[str | None], Api]
) -> None:
    one = set_up(operator)
    where = f"schedules/{one['id']}"
    assert is_problem(integrator.post(f"{where}/pause", WHY), 404, "not-found")
    assert is_problem(integrator.post(where, NIGHTLY), 404, "not-found")
    assert is_problem(integrator.get(where), 404) and integrator.get("schedules").json()["results"] == []
    for empty in (where, f"{where}/pause", f"{where}/delete"):
        assert is_problem(integrator.post(empty, {}), 404, "not-found"), "whose it isn't, for them there is none"
    assert operator.post(f"schedules/{set_up(integrator)['id']}/pause", WHY).status_code == 200
