"""What all workers share, over HTTP; and how urgent a run is."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.models import ActRecord
from runs.api.limits import LimitPage
from runs.models import Limit, Run
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem

pytestmark = pytest.mark.django_db
WHY = {"justification": "the other side says so"}
KEY = {"key": "tool:charge"} | WHY


def test_an_operator_says_what_counts_and_everybody_reads_it(operator: Api, auditor: Api) -> None:
    answer = operator.post("limits", KEY | {"per_minute": 60, "at_once": 4})
    assert answer.status_code == 200, answer.content
    told = answer.json()
    assert told["rule"] == {
        "per_minute": 60,
        "burst": None,
        "at_once": 4,
        "breaker": None,
        "rest": None,
        "weight": None,
    }
    assert (told["breaker"], told["waiting"], told["under_way"], told["runs"]) == ("closed", 0, 0, [])
    assert operator.post("limits/open", KEY).json()["is_by_hand"] is True
    page = auditor.get("limits?limit=1").json()
    assert LimitPage.model_validate(page) and [row["key"] for row in page["results"]] == ["tool:charge"]
    assert operator.post("limits/close", KEY).json()["breaker"] == "closed"
    assert operator.post("limits/reset", KEY).json()["rule"]["per_minute"] is None
    assert ActRecord.objects.filter(subject="limit tool:charge").count() == 4


@each_case(
    ("body", "status"),
    [
        ({"key": "charge", "at_once": 1}, 422),
        ({"key": "tool:a", "weight": 1}, 422),
        ({"key": "tool:a", "at_once": 0}, 422),
        ({"key": "tool:a", "at_once": "1"}, 422),
        ({"key": "tool:a", "at_once": True}, 422),
        ({"key": "tool:a\u0000", "at_once": 1}, 422),
        ({"key": "tool:" + "a" * 400, "at_once": 1}, 422),
        ({"at_once": 1}, 422),
        ({"key": "tool:a", "at_once": 1, "justification": ""}, 422),
        ({"key": "tool:a", "stray": 1}, 422),
    ],
)
def test_bad_input_changes_nothing(operator: Api, body: dict[str, Any], status: int) -> None:
    is_problem(operator.post("limits", WHY | body), status)
    assert not Limit.objects.exists() and not ActRecord.objects.filter(subject__startswith="limit").exists()


def test_a_start_names_its_priority_within_what_its_caller_may_give(
    integrator: Api, operator: Api, auditor: Api
) -> None:
    assert integrator.post("runs", START).json()["priority"] == 0
    run = integrator.post("runs", START | {"priority": 5}).json()
    assert run["priority"] == 5 == Run.objects.get(pk=run["id"]).priority
    before = Run.objects.count()
    is_problem(integrator.post("runs", START | {"priority": 6}), 422)
    assert Run.objects.count() == before, "refused, nothing was started"
    assert operator.post("runs", START | {"priority": 100}).json()["priority"] == 100
    told = operator.post(f"runs/{run['id']}/priority", {"priority": -3} | WHY)
    assert told.status_code == 200 and auditor.get(f"runs/{run['id']}").json()["priority"] == -3
    record = ActRecord.objects.filter(subject=f"run {run['id']}", action="priority").latest("id")
    assert (record.before, record.after) == ({"priority": 5}, {"priority": -3})
    is_problem(operator.post(f"runs/{run['id']}/priority", {"priority": 1}), 422)
    is_problem(operator.post(f"runs/{run['id']}/priority", {"priority": 101} | WHY), 422)
