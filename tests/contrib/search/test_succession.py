"""Continuations on the real database: one commit, one successor, one budget, one key, verified links."""

from __future__ import annotations

from durableagents import Budget, Keyword
from durableagents.contrib.search.models import Attribute
from runs.services import lifecycle
from tests.integration.runs.stage import Stage, fresh, head
from tests.integration.runs.test_succession import counting, successors, whole
from tests.world import SHOP, Toolbox


def test_what_is_left_of_the_budget_and_of_the_time_goes_along(stage: Stage, tools: Toolbox) -> None:
    agent = counting(tools, 4, attributes={"customer": Keyword()})
    run = lifecycle.start(
        agent.graph_id,
        {},
        by=SHOP,
        tags=["late"],
        budget=Budget(tool_calls=3, wall_seconds=3600),
        attributes={"customer": "ACME"},
    )
    for _ in range(3):
        assert stage.drive() == "completed"
    *_, fourth = successors(run)
    assert [head(each).cap_tool_calls for each in (run, *successors(run))] == [3, 2, 1, 0]
    assert {each.time_up_at for each in successors(run)} == {fresh(run).time_up_at}
    assert fourth.tags == ["late"] and Attribute.objects.get(run_id=fourth.pk, name="customer").word == "ACME"
    assert stage.drive() == "paused" and str(fresh(fourth).state) == "paused"
    whole(run)
