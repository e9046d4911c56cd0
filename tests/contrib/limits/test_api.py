"""Limits over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from durableagents.contrib.limits.api import LimitPage
from durableagents.contrib.limits.models import Limit, SharedBudget
from durableagents.contrib.limits.permits import WorkerLimits
from durableagents.contrib.limits.queries import get_limit, list_limits
from ledger.models import ActRecord
from runs.engine.limits import Permit, Refused
from tests.cases import each_case
from tests.contrib.limits.team import Team, in_thread, said
from tests.contrib.limits.team import asked as wanted
from tests.integration.api.conftest import Api, auditor, caller, integrator, is_problem, operator, order_agent  # noqa: F401 (fixtures)
from tests.integration.api.test_fleet_acts import RESEARCH, WHY
from tests.integration.api.test_roads import intruder, named
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.stage import Stage

pytestmark = pytest.mark.django_db


FORGED_END = "UPDATE ledger_rowcode SET n = 2, state = '' WHERE table_name = 'runs_limit' AND key = %s;"
CLEAR = "UPDATE runs_limit SET given = NULL, given_by = '', given_at = NULL WHERE key = %s"
KEY = {"key": "tool:charge"} | WHY


@pytest.mark.django_db(transaction=True)
@each_case(
    ("key", "change"),
    [
        ("tool:raised", "UPDATE runs_limit SET given = '{\"at_once\": 1000}' WHERE key = %s"),
        ("tool:cleared", CLEAR),
        ("tool:deleted", "DELETE FROM runs_limit WHERE key = %s"),
        ("tool:ended", FORGED_END + CLEAR),
    ],
)
def test_limit_of_a_tool_changed_by_sql_lets_nothing_out(stage: Stage, key: str, change: str) -> None:
    said(key, at_once=1)
    team = Team(stage)

    async def story(one: WorkerLimits) -> None:
        held = await one.take((key,), wanted())
        assert isinstance(held, Permit)
        await in_thread(change_by_sql)
        # The worker's own setting counts, and the forged one does not once it is seen.
        refused = await one.take((key,), wanted(patience=0.1))
        assert isinstance(refused, Refused) and refused.why == "at_once"
        team.all.append(WorkerLimits(one.worker))  # as after a restart
        await team.look()
        for each in team.all:
            assert each.needs_permit((key,))
            refused = await each.take((key,), wanted(patience=0.1))
            assert isinstance(refused, Refused) and (refused.key, refused.why) == (key, "changed")
        one.give_back(held)

    def change_by_sql() -> None:
        with intruder() as cursor:
            cursor.execute(change, [key] * change.count("%s"))

    team.play(story)
    assert f"limit '{key}'" in named()
    if key != "tool:deleted":  # only the key reveals a forged end, so the list omits it
        assert not get_limit(key).is_authentic
        assert (key in [row.key for row in list_limits(limit=100)]) is (key != "tool:ended")


def test_an_operator_says_what_counts_and_everybody_reads_it(operator: Api, auditor: Api) -> None:
    answer = operator.post("limits", KEY | {"per_minute": 60, "at_once": 4})
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert body["rule"] == {
        "per_minute": 60,
        "burst": None,
        "at_once": 4,
        "breaker": None,
        "rest": None,
        "weight": None,
    }
    assert (body["breaker"], body["waiting"], body["under_way"], body["runs"]) == ("closed", 0, 0, [])
    seen = {"headers": {"If-Match": body["etag"]}}
    assert operator.post("limits/open", KEY, **seen).json()["is_by_hand"] is True
    for address, late in (("limits", KEY | {"per_minute": 9}), ("limits/reset", KEY), ("limits/close", KEY)):
        assert is_problem(operator.post(address, late, **seen), 412, "changed"), address
    assert is_problem(operator.post("limits", KEY | {"key": "tool:unset", "at_once": 1}, **seen), 412)
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


def test_a_repeat_makes_one(operator: Api) -> None:
    first, again = (operator.post("shared-budgets", RESEARCH, headers={"Idempotency-Key": "p"}) for _ in range(2))
    assert first.content == again.content and SharedBudget.objects.count() == 1


@each_case(
    ("wrong", "field"),
    [
        ({"limit": None}, "limit"),
        ({"limit": True}, "limit"),
        ({"whose": "a\u0000b"}, "whose"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\u202eb"}, "name"),
        ({"currency": "EUR"}, "currency"),
    ],
)
def test_what_can_t_be_is_refused_by_name(operator: Api, wrong: dict[str, Any], field: str) -> None:
    answer = operator.post("shared-budgets", RESEARCH | wrong)
    assert answer.status_code == 422, answer.content
    assert field in [each["field"] for each in answer.json()["errors"]] and not SharedBudget.objects.exists()
