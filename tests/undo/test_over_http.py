"""Undo over HTTP: what would be undone is shown, a cancel has to say what becomes of it, and what became is told."""

from __future__ import annotations

import pytest

from durableagents import Context, End
from runs.models import Run
from tests.api.conftest import Api, is_problem
from tests.engine.undoings import Reversible
from tests.runs.stage import Stage, fresh
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
        ("stays", "order", "", None, ""), ("undo", "book", "unbook", {"name": "book:a", "amount": 1}, "")
    ]  # fmt: skip
    refused = operator.post(f"runs/{run.id}/cancel", {"justification": "no more"})
    assert (
        is_problem(refused, 422, "invalid-input")
        and refused.json()["errors"][0]["problem"] == "book (book:a): undone by unbook"
    )
    assert is_problem(operator.post(f"runs/{run.id}/cancel", {"justification": "x", "effects": "some"}), 422)
    assert is_problem(operator.post(f"runs/{run.id}/pause", {"justification": "x", "effects": "undo"}), 422)
    told = operator.post(f"runs/{run.id}/cancel", {"justification": "no more", "effects": "undo"})
    assert told.status_code == 200 and told.json()["cancel_requested"] is True
    assert stage.settle(run) == "cancelled"
    seen = operator.get(f"runs/{run.id}/undo").json()
    assert (seen["state"], seen["is_needed"]) == ("done", False)
    assert [x["became"] for x in seen["effects"]] == ["", "undone"]


def test_what_is_said_of_a_cancel_is_all_that_it_takes(run: Run, operator: Api) -> None:
    """A machine that sends just what is asked for stops a run that has acted, too."""
    (cancel,) = [act for act in operator.get(f"runs/{run.id}/why").json()["acts"] if act["act"] == "cancel"]
    assert cancel["allowed"] and set(cancel["body"]["required"]) == {"effects", "justification"}
    assert cancel["body"]["properties"]["effects"]["enum"] == ["undo", "leave"], "and not that nothing is said"
    assert operator.post(cancel["path"], {"justification": "no more", "effects": "leave"}).status_code == 200
    assert str(fresh(run).state) == "cancelled"


def test_a_run_that_is_not_there_has_no_effects(operator: Api) -> None:
    assert is_problem(operator.get("runs/00000000-0000-0000-0000-000000000001/undo"), 404)
