"""Whom a run asks, over HTTP: told to everybody, moved by operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runs.api.schemas import AskedPage
from tests.integration.api.conftest import Api, is_problem
from tests.integration.api.test_story import Story
from tests.integration.api.worker import purchase_agent, working

pytestmark = pytest.mark.django_db(transaction=True)
WHY = "The first is down."
HERE = "scripted:thinker"


@pytest.fixture
def run(caller: Callable[[Any], Api]) -> Any:
    """A run that has asked its model and waits for a supplier."""
    with purchase_agent(), working() as host:
        story = Story(caller, host).start()
        story.until("waiting_tool", kind="webhook")
        yield story


def test_everybody_may_see_it_and_an_operator_moves_it(
    caller: Callable[[Any], Api], run: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    path = f"runs/{run.id}/models"
    told = caller("auditor").get(path).json()
    assert AskedPage.model_validate(told)
    assert told["results"] == [{"assistant": "thinker", "models": [HERE], "by": "system:settings"}]
    for role in ("integrator", "approver_finance", "auditor"):
        assert is_problem(caller(role).post(path, {"models": [HERE], "justification": WHY}), 403, "forbidden")
    answer = caller("operator").post(path, {"models": ["openai:gpt-4.1", HERE], "justification": WHY})
    assert answer.status_code == 200 and [row["assistant"] for row in answer.json()["results"]] == ["thinker", ""]
    assert answer.json()["results"][0]["models"] == ["openai:gpt-4.1", HERE]
    assert caller("auditor").get(path).json() == answer.json()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"models": ["gpt"]}, "models"),
        ({"models": []}, "models"),
        ({"models": "openai:gpt"}, "models"),
        ({}, "models"),
        ({"models": [HERE], "assistant": "nobody"}, "assistant"),
        ({"models": [HERE], "modle": 1}, "modle"),
        ({"models": [f"a:{n}" for n in range(9)]}, "models"),
        ({"models": [7]}, "models.0"),
        ({"models": ["openai:\x00"]}, "models.0"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_done(
    caller: Callable[[Any], Api], run: Story, body: dict[str, Any], field: str
) -> None:
    path = f"runs/{run.id}/models"
    before = run.now()["seq"]
    answer = caller("operator").post(path, body | {"justification": WHY})
    assert is_problem(answer, 422, "invalid-input"), answer.content
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert run.now()["seq"] == before
