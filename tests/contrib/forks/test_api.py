"""Forks over HTTP: preview, creation, refusals, and no duplicates."""

from __future__ import annotations

from typing import Any

import pytest

from runs.models import Run
from tests.contrib.forks.test_forks import orders
from tests.integration.api.conftest import Api, is_problem
from tests.integration.runs.stage import Stage
from tests.world import Outside, Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(stage: Stage, tools: Toolbox) -> Run:
    run = stage.start(orders(tools), text="ours")
    stage.settle(run)
    return run


def test_what_would_happen_again_is_shown_before_anybody_forks(run: Run, operator: Api) -> None:
    seen = operator.get(f"runs/{run.id}/fork").json()
    assert [(x["visit"], x["node"]) for x in seen["points"]] == [(1, "read"), (2, "order")]
    assert (seen["visit"], seen["effects"]) == (None, [])
    seen = operator.get(f"runs/{run.id}/fork", visit=2).json()
    assert [(x["tool"], x["external_id"], x["outcome"], x["has_result"]) for x in seen["effects"]] == [
        ("order", "order:a", "committed", True),
        ("order", "order:b", "committed", True),
    ]
    assert seen["state"]["seen"] == ["look:catalogue"] and seen["all_are_asked_about"] is False
    assert len(operator.get(f"runs/{run.id}/fork", visit=1).json()["effects"]) == 2


@pytest.mark.parametrize("query", [{"visit": 0}, {"visit": 9}, {"visit": "x"}, {"visit": 2, "version": "8.0.0"}])
def test_a_dry_run_says_what_is_wrong(run: Run, operator: Api, query: Any) -> None:
    refused = operator.get(f"runs/{run.id}/fork", **query)
    assert is_problem(refused, refused.status_code) and 400 <= refused.status_code < 500


def test_a_fork_is_made_once_under_its_key_and_asks_before_each_effect(
    stage: Stage, run: Run, operator: Api, outside: Outside
) -> None:
    body = {"visit": 2, "justification": "once more", "if_effects": 2}
    first = operator.post(f"runs/{run.id}/fork", body, headers={"Idempotency-Key": "f-1"})
    again = operator.post(f"runs/{run.id}/fork", body, headers={"Idempotency-Key": "f-1"})
    assert first.status_code == 201 and first.content == again.content and Run.objects.count() == 2
    made = first.json()
    assert (made["forked_from"], made["fork_how"], made["state"]) == (str(run.id), "fork", "pending")
    assert is_problem(
        operator.post(f"runs/{run.id}/fork", body | {"visit": 1}, headers={"Idempotency-Key": "f-1"}), 422
    )
    stage.settle(Run.objects.get(pk=made["id"]))
    (wait,) = operator.get(f"runs/{made['id']}").json()["waiting_for"]
    assert wait["kind"] == "input"
    wrong = operator.post(f"runs/{made['id']}/answers/{wait['id']}", {"answer": {"decision": "yes"}})
    assert is_problem(wrong, 422)
    response = operator.post(
        f"runs/{made['id']}/answers/{wait['id']}", {"answer": {"decision": "take_what_is_on_record"}}
    )
    assert response.status_code == 200
    stage.settle(Run.objects.get(pk=made["id"]))
    assert len(outside.executed("order")) == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"visit": 7}, 422),
        ({"visit": "2"}, 422),
        ({"visit": 2, "if_effects": 1}, 409),
        ({"visit": 2, "state": {}}, 422),
        ({"visit": 2, "answers": {"order": {}}}, 422),
    ],
)
def test_bad_input_is_refused_by_name_and_changes_nothing(
    run: Run, operator: Api, body: dict[str, Any], status: int
) -> None:
    refused = operator.post(f"runs/{run.id}/fork", {"justification": "try"} | body)
    assert is_problem(refused, status), refused.content
    assert Run.objects.count() == 1
