"""Releases over HTTP: an agent's versions, closing and opening one, ramps, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from runs.models import Process, Ramp, Run, Served, VersionGate
from tests.api.conftest import START, Api, is_problem
from tests.world import agent_of, ends_with, only_for_now

pytestmark = pytest.mark.django_db
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
    told = auditor.get(f"agents/{NAME}/versions").json()
    assert [(one["version"], one["living"], one["runs"]["pending"]) for one in told["results"]] == [
        ("10.0.0", 0, 0),
        ("2.0.0", 2, 2),
        ("1.0.0", 1, 1),
    ]
    assert told["ramp"] is None and told["results"][0]["forecast"] is None
    assert told["results"][1]["forecast"]["why"] == "fewer than 10 of its runs have ended"
    assert not told["results"][1]["served"] and not told["results"][1]["is_closed"]
    assert is_problem(auditor.get("agents/nobody/versions"), 404)


def test_a_closed_version_refuses_starts_until_it_is_opened(operator: Api, integrator: Api) -> None:
    closed = operator.post(f"agents/{NAME}/versions/10.0.0/close", WHY).json()
    assert closed["is_closed"] and closed["closed_by"] == "key:operator" and closed["why"] == WHY["justification"]
    assert is_problem(started(integrator, f"{NAME}@10.0.0"), 409, "version-closed")
    assert started(integrator).json()["version"] == "2.0.0"
    assert is_problem(operator.post(f"agents/{NAME}/versions/10.0.0/close", WHY), 409, "illegal-state")
    assert is_problem(operator.post(f"agents/{NAME}/versions/2.0.0/close", {}), 422, "justification-required")
    assert is_problem(operator.post(f"agents/{NAME}/versions/two/close", WHY), 422, "invalid-input")
    assert is_problem(operator.post("agents/nobody/versions/2.0.0/close", WHY), 404)
    assert operator.post(f"agents/{NAME}/versions/10.0.0/open", WHY).json()["is_closed"] is False
    assert started(integrator).json()["version"] == "10.0.0"


def test_a_version_is_closed_however_many_newer_ones_are_known(operator: Api) -> None:
    """More than a list shows."""
    VersionGate.objects.bulk_create(
        VersionGate(agent=NAME, version=f"11.{n}.0", is_closed=False, set_by="os:olga", set_at=timezone.now(), why="x")
        for n in range(520)
    )
    closed = operator.post(f"agents/{NAME}/versions/1.0.0/close", WHY)
    assert closed.status_code == 200 and closed.json()["version"] == "1.0.0" and closed.json()["is_closed"]


def test_a_ramp_is_set_raised_and_finished_and_a_start_tells_its_side(operator: Api, integrator: Api) -> None:
    operator.post(f"agents/{NAME}/versions/10.0.0/close", WHY)
    one = operator.post("ramps", RAMP | {"tags": ["beta"], "rejected": None})
    assert one.status_code == 201, one.content
    ramp = one.json()
    assert (ramp["share"], ramp["tags"], ramp["state"]) == ("10", ["beta"], "on")
    assert ramp["bounds"] == {"failed": 5, "rejected": None, "stopped": 5} and ramp["at_least"] == 20
    where = f"ramps/{ramp['id']}"
    assert operator.get(where).json() == ramp and operator.get("ramps").json()["results"] == [ramp]
    hidden = ramp | {"figures": None, "to_new": None, "to_old": None}  # of runs that an integrator doesn't see
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


def test_one_act_takes_it_back(operator: Api, integrator: Api) -> None:
    ramp = operator.post("ramps", RAMP).json()["id"]
    back = operator.post(f"ramps/{ramp}/rollback", WHY).json()
    assert (back["state"], back["share"]) == ("rolled_back", "0")
    assert is_problem(started(integrator, f"{NAME}@2.0.0"), 409, "version-closed")


def test_a_repeat_sets_one(operator: Api) -> None:
    first, again = (operator.post("ramps", RAMP, headers={"Idempotency-Key": "r"}) for _ in range(2))
    assert first.content == again.content and Ramp.objects.count() == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"share": 0}, "share"),
        ({"share": 100.01}, "share"),
        ({"share": "1e9"}, "share"),
        ({"share": True}, "share"),
        ({"share": None}, "share"),
        ({"share": 10.001}, "share"),
        ({"tags": []}, "tags"),
        ({"tags": "beta"}, "tags"),
        ({"to_version": "1.0.0"}, "to_version"),
        ({"to_version": "3.0.0"}, "to_version"),
        ({"agent": "x@1"}, "agent"),
        ({"failed": 0}, "failed"),
        ({"failed": 5.5}, "failed"),
        ({"edits": 3}, "edits"),
        ({"at_least": 0}, "at_least"),
    ],
    ids=str,
)
def test_what_can_t_be_is_refused_by_name(operator: Api, wrong: dict[str, Any], field: str) -> None:
    answer = operator.post("ramps", RAMP | wrong)
    assert answer.status_code == 422, answer.content
    assert field in [each["field"] for each in answer.json()["errors"]] and not Ramp.objects.exists()


def test_many_starts_in_one_request_stay_on_their_sides(operator: Api, integrator: Api) -> None:
    worker = Process.objects.create(
        id="00000000-0000-0000-0000-00000000aaaa",
        kind="worker",
        host="h",
        boot="b",
        pid=1,
        born_ticks=1,
        started_at=timezone.now(),
        last_heartbeat_at=timezone.now() + timedelta(hours=1),
    )
    for version in ("1.0.0", "2.0.0"):
        Served.objects.create(worker=worker.pk, graph_id=f"{NAME}@{version}")
    operator.post("ramps", RAMP | {"share": 50})
    asked = {"runs": [{"agent": NAME, "input": {}, "business_key": f"k{n}"} for n in range(12)]}
    first = integrator.post("runs/bulk", asked, headers={"Idempotency-Key": "many"}).json()["results"]
    again = integrator.post("runs/bulk", asked, headers={"Idempotency-Key": "many"}).json()["results"]
    assert first == again and Run.objects.count() == 12
    assert {one["run"]["version"] for one in first} == {"1.0.0", "2.0.0"}
    assert not VersionGate.objects.exists() and START
