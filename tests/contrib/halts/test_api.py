"""Halts over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from durableagents.contrib.halts.api import HaltPage
from durableagents.contrib.halts.models import Halt
from durableagents.contrib.halts.queries import HaltRow
from ledger.models import ActRecord
from tests.cases import each_case
from tests.integration.api.conftest import Api, auditor, caller, integrator, is_problem, operator, order_agent  # noqa: F401 (fixtures)
from tests.integration.api.test_fleet_acts import TOOL, WHY
from tests.integration.runs.conftest import stage  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db


def test_an_operator_halts_lifts_in_stages_and_everybody_reads_it(operator: Api, auditor: Api) -> None:
    answer = operator.post("halts", TOOL)
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert HaltRow.model_validate(body) and (body["scope"], body["key"], body["revision"]) == ("tool", "charge", 0)
    path = f"halts/{body['id']}"
    staged = operator.post(f"{path}/stage", WHY | {"share": 12.5, "tags": ["beta"], "revision": 0}).json()
    assert (staged["is_staged"], staged["share"], staged["tags"]) == (True, "12.5", ["beta"])
    is_problem(operator.post(f"{path}/stage", WHY | {"share": 20, "revision": 0}), 409)
    assert operator.post(f"{path}/stage", WHY).json()["is_staged"] is False
    assert operator.post(f"{path}/lift", WHY).json()["state"] == "lifted"
    is_problem(operator.post(f"{path}/lift", WHY), 409)
    page = auditor.get("halts").json()
    assert HaltPage.model_validate(page) and [row["state"] for row in page["results"]] == ["lifted"]
    assert ActRecord.objects.filter(subject=f"halt {body['id']}").count() == 4


@each_case(
    "body",
    [
        {"scope": "tool"},
        {"scope": "tol", "key": "charge"},
        {"scope": "all"},
        {"scope": "tool", "key": "charge", "justification": ""},
        {"scope": "tool", "key": "charge\u0000"},
        {"scope": "tool", "key": "c" * 400},
        {"scope": "tool", "key": "charge", "stray": 1},
        {"key": "charge"},
    ],
)
def test_bad_input_halts_nothing(operator: Api, body: dict[str, Any]) -> None:
    is_problem(operator.post("halts", WHY | body), 422)
    assert not Halt.objects.exists() and not ActRecord.objects.filter(subject__startswith="halt").exists()
