"""Undo over HTTP: a preview, a cancel that must choose, and the result."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from durableagents import Context, End
from runs.models import Run
from tests.integration.api.conftest import Api, is_problem, person
from tests.integration.runs.stage import Stage, fresh
from tests.unit.engine.undoings import Reversible
from tests.world import Notes, Outside, agent_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(stage: Stage, outside: Outside) -> Run:
    tools = Reversible(outside)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.call(tools.order, {"name": "b"})
        await ctx.signal("go")
        return End()

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.settle(run)
    return run


def test_what_would_be_undone_is_shown_and_a_cancel_says_what_becomes_of_it(
    stage: Stage, run: Run, operator: Api, outside: Outside
) -> None:
    seen = operator.get(f"runs/{run.id}/undo").json()
    assert (seen["state"], seen["is_needed"]) == ("possible", True)
    assert [(x["then"], x["tool"], x["by"], x["arguments"], x["became"]) for x in seen["effects"]] == [
        ("stays", "order", "", None, ""),
        ("undo", "book", "unbook", {"name": "book:a", "amount": 1}, ""),
    ]
    refused = operator.post(f"runs/{run.id}/cancel", {"justification": "no more"})
    assert (
        is_problem(refused, 422, "invalid-input")
        and refused.json()["errors"][0]["problem"] == "book (book:a): undone by unbook"
    )
    assert is_problem(operator.post(f"runs/{run.id}/cancel", {"justification": "x", "effects": "some"}), 422)
    assert is_problem(operator.post(f"runs/{run.id}/pause", {"justification": "x", "effects": "undo"}), 422)
    response = operator.post(f"runs/{run.id}/cancel", {"justification": "no more", "effects": "undo"})
    assert response.status_code == 200 and response.json()["cancel_requested"] is True
    assert stage.settle(run) == "cancelled"
    seen = operator.get(f"runs/{run.id}/undo").json()
    assert (seen["state"], seen["is_needed"]) == ("done", False)
    assert [x["became"] for x in seen["effects"]] == ["", "undone"]


def test_what_is_said_of_a_cancel_is_all_that_it_takes(run: Run, operator: Api) -> None:
    """A client that sends exactly the requested fields can stop a run with effects."""
    (cancel,) = [act for act in operator.get(f"runs/{run.id}/why").json()["acts"] if act["act"] == "cancel"]
    assert cancel["allowed"] and set(cancel["body"]["required"]) == {"effects", "justification"}
    assert cancel["body"]["properties"]["effects"]["enum"] == ["undo", "leave"], "and not that nothing is said"
    reason = cancel["body"]["properties"]["justification"]
    assert reason["minLength"] == 1 and "default" not in reason
    assert operator.post(cancel["path"], {"justification": "no more", "effects": "leave"}).status_code == 200
    assert str(fresh(run).state) == "cancelled"
    seen = operator.get(f"runs/{run.id}/undo").json()
    assert seen["state"] == "done" and [x["became"] for x in seen["effects"]] == ["", "left"]


def test_a_failed_run_that_was_undone_offers_nothing_that_nobody_may(
    stage: Stage, outside: Outside, operator: Api, client: Client
) -> None:
    tools = Reversible(outside)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "a"})
        raise ValueError("no room")

    run = stage.start(agent_of(node, tools=tools.all()))
    assert stage.settle(run) == "failed"
    why = operator.get(f"runs/{run.id}/why").json()
    status = why["status"]
    assert status["reason"] == "failed" and status["who"]["kind"] == "nobody"
    assert "Start it again as a new run" in status["sentence"] and "_undo" not in status["sentence"]
    assert not any(act["allowed"] for act in why["acts"] if act["act"] == "retry")
    row = operator.get(f"runs/{run.id}").json()
    assert "retry" not in row["status"]["actions"] and row["node"] is None
    client.force_login(person("olga2", "operator"))
    page, listed = (client.get(path).content.decode() for path in (f"/runs/{run.id}", "/runs"))
    for text in (page, listed):
        assert not re.search(r"(in|at) (<[^>]*>)*_undo", text)
    assert "can retry from this step" not in page and "Start it again as" in page and "effects undone" in listed


def test_a_failed_run_can_be_retried_as_long_as_nothing_was_undone(stage: Stage, operator: Api) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        raise ValueError("no room")

    run = stage.start(agent_of(node))
    assert stage.settle(run) == "failed"
    row = operator.get(f"runs/{run.id}").json()
    assert row["status"]["who"]["kind"] == "people" and "retry" in row["status"]["actions"] and row["node"] == "node"


def test_a_run_that_is_not_there_has_no_effects(operator: Api) -> None:
    assert is_problem(operator.get("runs/00000000-0000-0000-0000-000000000001/undo"), 404)
