"""Releases over HTTP: an agent's versions, closing and opening one, ramps, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from durableagents.contrib.releases.models import Ramp
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem
from tests.world import agent_of, ends_with, only_for_now

WHY = {"justification": "for the test"}
NAME = "releasing"
RAMP = WHY | {"agent": NAME, "from_version": "1.0.0", "to_version": "2.0.0", "share": 10}


@pytest.fixture(autouse=True)
def two() -> Any:
    with only_for_now():
        for version in ("1.0.0", "2.0.0", "10.0.0"):
            agent_of(ends_with(1), name=NAME, version=version)
        yield


def started(api: Api, agent: str = NAME, **more: Any) -> Any:
    return api.post("runs", {"agent": agent, "input": {}} | more)


def test_versions_are_listed_newest_first_with_what_they_have_under_way(integrator: Api, auditor: Api) -> None:
    started(integrator, f"{NAME}@1.0.0"), started(integrator, f"{NAME}@2.0.0"), started(integrator, f"{NAME}@2.0.0")
    body = auditor.get(f"agents/{NAME}/versions").json()
    assert [(one["version"], one["living"], one["runs"]["pending"]) for one in body["results"]] == [
        ("10.0.0", 0, 0),
        ("2.0.0", 2, 2),
        ("1.0.0", 1, 1),
    ]
    assert body["ramp"] is None and body["results"][0]["forecast"] is None
    assert body["results"][1]["forecast"]["why"] == "fewer than 10 of its runs have ended"
    assert not body["results"][1]["served"] and not body["results"][1]["is_closed"]
    assert is_problem(auditor.get("agents/nobody/versions"), 404)


def test_a_ramp_is_set_raised_and_finished_and_a_start_tells_its_side(operator: Api, integrator: Api) -> None:
    operator.post(f"agents/{NAME}/versions/10.0.0/close", WHY)
    one = operator.post("ramps", RAMP | {"tags": ["beta"], "rejected": None})
    assert one.status_code == 201, one.content
    ramp = one.json()
    assert (ramp["share"], ramp["tags"], ramp["state"]) == ("10", ["beta"], "on")
    assert ramp["bounds"] == {"failed": 5, "rejected": None, "stopped": 5} and ramp["at_least"] == 20
    where = f"ramps/{ramp['id']}"
    assert operator.get(where).json() == ramp and operator.get("ramps").json()["results"] == [ramp]
    hidden = ramp | {"figures": None, "to_new": None, "to_old": None}  # of runs hidden from an integrator
    assert integrator.get(where).json() == hidden and integrator.get("ramps").json()["results"] == [hidden]
    assert integrator.get("ramps", agent="other").json()["results"] == []
    run = started(integrator, tags=["beta"]).json()
    assert run["version"] == "1.0.0"
    assert run["assigned"] == {"ramp": ramp["id"], "is_new": False, "why": "unserved"} and run["served"] is False
    assert integrator.get(f"runs/{run['id']}").json()["assigned"] == run["assigned"]
    raised = operator.post(f"{where}/raise", WHY | {"share": 50.25, "revision": 1}).json()
    assert (raised["share"], raised["revision"], raised["to_old"]) == ("50.25", 2, 1)
    assert is_problem(operator.post(f"{where}/raise", WHY | {"share": 60, "revision": 1}), 409, "ramp-moved")
    assert is_problem(operator.post(f"{where}/raise", WHY | {"share": 50}), 422, "invalid-input")
    assert is_problem(operator.post(f"{where}/resume", WHY), 409, "illegal-state")
    assert is_problem(operator.post("ramps", RAMP), 409, "illegal-state")
    done = operator.post(f"{where}/finish", WHY).json()
    assert (done["state"], done["figures"]) == ("done", None)
    assert is_problem(operator.post(f"{where}/rollback", WHY), 409, "illegal-state")
    assert started(integrator).json()["assigned"] is None and is_problem(operator.get("ramps/404"), 404)


@each_case(
    ("wrong", "field"),
    [
        ({"share": True}, "share"),
        ({"tags": "beta"}, "tags"),
        ({"agent": "x@1"}, "agent"),
        ({"failed": 5.5}, "failed"),
        ({"edits": 3}, "edits"),
    ],
)
def test_what_can_t_be_is_refused_by_name(operator: Api, wrong: dict[str, Any], field: str) -> None:
    answer = operator.post("ramps", RAMP | wrong)
    assert answer.status_code == 422, answer.content
    assert field in [each["field"] for each in answer.json()["errors"]] and not Ramp.objects.exists()
