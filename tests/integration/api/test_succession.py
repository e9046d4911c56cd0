"""Runs that go on as others, over HTTP: each names the next, the newest is easy to find, what is sent reaches it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from durableagents.identity.auth import issue_key
from runs.api.schemas import RunRow
from runs.models import Run
from tests.integration.api.conftest import Api, is_problem, person
from tests.integration.api.going import going_on
from tests.integration.api.worker import working
from tests.integration.console.stage import settled, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(integrator: Api) -> Iterator[str]:
    """A keeper that has been renewed once, under a key."""
    with going_on(), working():
        told = integrator.post(
            "runs", {"agent": "keeper", "input": {"letters": "", "title": "Shop"}, "business_key": "shop 7"}
        ).json()
        settled(Run.objects.get(pk=told["id"]), "waiting_event")
        assert integrator.post(f"runs/{told['id']}/signals/go", {"payload": "a", "id": "1"}).status_code == 202
        until(lambda: Run.objects.filter(came_from=told["id"], state="waiting_event").exists(), "its heir")
        yield told["id"]


def test_each_names_the_next_and_the_newest_is_found(run: str, auditor: Api, integrator: Api) -> None:
    old = auditor.get(f"runs/{run}").json()
    new = auditor.get(f"runs/{run}/latest").json()
    assert RunRow.model_validate(old) and RunRow.model_validate(new)
    assert (old["state"], old["output"], old["renewed_as"], old["handed_off_to"]) == (
        "completed",
        None,
        new["id"],
        None,
    )
    assert (new["came_from"], new["turn"], new["business_key"], new["renewed_as"]) == (run, 1, "shop 7", None)
    assert new["journal"]["events"] == new["seq"] and new["journal"]["bytes"] > 100
    assert auditor.get(f"runs/{new['id']}/latest").json() == new
    assert [row["id"] for row in auditor.get("runs").json()["results"]] == [new["id"], run]
    joined = {"agent": "keeper", "input": {"letters": ""}, "business_key": "shop 7", "on_conflict": "join"}
    assert integrator.post("runs", joined).json()["id"] == new["id"]


def test_what_is_sent_to_the_old_one_reaches_the_newest_until_all_is_over(run: str, integrator: Api) -> None:
    again = integrator.post(f"runs/{run}/signals/go", {"payload": "a", "id": "1"})
    assert (again.status_code, again.json()["run"]) == (200, run), "what was sent before is the same signal"
    sent = integrator.post(f"runs/{run}/signals/go", {"payload": "b"})
    assert sent.status_code == 202 and sent.json()["run"] == integrator.get(f"runs/{run}").json()["renewed_as"]
    integrator.post(f"runs/{run}/signals/go", {"payload": "c"})
    until(lambda: Run.objects.filter(agent="desk", state="completed").exists(), "the desk")
    last = integrator.get(f"runs/{run}/latest").json()
    assert (last["agent"], last["turn"], last["output"]) == ("desk", 3, {"letters": "abc", "title": "Shop"})
    assert last["business_key"] is None
    before = integrator.get(f"runs/{last['came_from']}").json()
    assert (before["handed_off_to"], before["renewed_as"]) == (last["id"], None)
    assert is_problem(integrator.post(f"runs/{run}/signals/go", {"payload": "d"}), 409, "illegal-state")


@pytest.mark.parametrize("act", ["pause", "resume", "cancel", "retry"])
def test_acts_on_the_old_one_are_refused_with_the_name_of_the_next(run: str, operator: Api, act: str) -> None:
    answer = operator.post(f"runs/{run}/{act}", {"justification": "Look at it first."})
    assert is_problem(answer, 409, "illegal-state")
    assert operator.get(f"runs/{run}").json()["renewed_as"] in answer.json()["detail"]


def test_who_may_not_steer_the_newest_may_not_by_the_old_one(run: str, auditor: Api) -> None:
    for who in (auditor, Api(issue_key(person("stranger", "integrator"), "test"))):
        answer = who.post(f"runs/{run}/pause", {"justification": "Look at it first.", "newest": True})
        assert answer.status_code in (403, 404)
    assert not Run.objects.filter(first=run, state="paused").exists()
