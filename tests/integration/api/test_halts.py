"""Halts over HTTP: set, looked at, lifted in stages; said by runs under one."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.models import ActRecord
from runs.api.halts.shapes import HaltPage, HaltRow
from runs.models import Halt
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem

pytestmark = pytest.mark.django_db
WHY = {"justification": "the other side answers nonsense"}
TOOL = {"scope": "tool", "key": "charge"} | WHY


def test_an_operator_halts_lifts_in_stages_and_everybody_reads_it(operator: Api, auditor: Api) -> None:
    answer = operator.post("halts", TOOL)
    assert answer.status_code == 201, answer.content
    told = answer.json()
    assert HaltRow.model_validate(told) and (told["scope"], told["key"], told["revision"]) == ("tool", "charge", 0)
    path = f"halts/{told['id']}"
    staged = operator.post(f"{path}/stage", WHY | {"share": 12.5, "tags": ["beta"], "revision": 0}).json()
    assert (staged["is_staged"], staged["share"], staged["tags"]) == (True, "12.5", ["beta"])
    is_problem(operator.post(f"{path}/stage", WHY | {"share": 20, "revision": 0}), 409)
    assert operator.post(f"{path}/stage", WHY).json()["is_staged"] is False
    assert operator.post(f"{path}/lift", WHY).json()["state"] == "lifted"
    is_problem(operator.post(f"{path}/lift", WHY), 409)
    page = auditor.get("halts").json()
    assert HaltPage.model_validate(page) and [row["state"] for row in page["results"]] == ["lifted"]
    assert ActRecord.objects.filter(subject=f"halt {told['id']}").count() == 4


@each_case(
    "body",
    [
        {"scope": "tool"},
        {"scope": "tol", "key": "charge"},
        {"scope": "all"},
        {"scope": "all", "confirm": "yes"},
        {"scope": "tool", "key": "charge", "justification": ""},
        {"scope": "tool", "key": "charge\u0000"},
        {"scope": "tool", "key": "c" * 400},
        {"scope": "tool", "key": "charge", "stray": 1},
        {"scope": "tag", "key": "a", "kind": "starts"},
        {"key": "charge"},
    ],
)
def test_bad_input_halts_nothing(operator: Api, body: dict[str, Any]) -> None:
    is_problem(operator.post("halts", WHY | body), 422)
    assert not Halt.objects.exists() and not ActRecord.objects.filter(subject__startswith="halt").exists()


def test_who_does_not_see_every_run_is_not_told_of_calls_in_flight(operator: Api, integrator: Api) -> None:
    it = operator.post("halts", TOOL).json()
    assert it["in_flight"] == [] and it["held"] == 0
    theirs = integrator.get(f"halts/{it['id']}").json()
    assert theirs["in_flight"] is None and theirs["held"] is None
