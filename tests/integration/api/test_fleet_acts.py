"""Operators' views and actions over HTTP: the fleet, incidents, halts, limits and shared budgets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from ledger.clock import database_now
from ledger.models import ActRecord
from runs.api.schemas import IncidentPage
from runs.fleet import members
from runs.models import Incident, Process, Run
from tests.integration.api.conftest import START, Api, is_problem
from tests.integration.api.test_pages import follow
from tests.integration.runs.conftest import stage  # noqa: F401 (fixture)
from tests.integration.runs.stage import Stage, fresh, kinds
from tests.world import agent_of, ends_with, only_for_now

WHY = {"justification": "It has said nothing for ten minutes."}


@pytest.fixture
def run(stage: Stage) -> Any:  # noqa: F811
    with only_for_now():
        found = stage.start(agent_of(ends_with("done")))
        stage.take(found)
        yield found


@pytest.mark.django_db(transaction=True)
def test_a_run_is_given_back_and_why_offers_it(operator: Api, auditor: Api, run: Any) -> None:
    (offer,) = [a for a in operator.get(f"runs/{run.id}/why").json()["acts"] if a["act"] == "requeue"]
    assert (offer["method"], offer["path"], offer["allowed"]) == ("POST", f"/api/v1/runs/{run.id}/requeue", True)
    assert is_problem(auditor.post(f"runs/{run.id}/requeue", WHY), 403, "forbidden")
    assert is_problem(operator.post(f"runs/{run.id}/requeue", {}), 422, "justification-required")
    assert operator.post(f"runs/{run.id}/requeue", WHY).status_code == 200
    assert fresh(run).owner is None and kinds(run)[-2:] == ["RunRequeued", "WorkerLost"]
    assert is_problem(operator.post(f"runs/{run.id}/requeue", WHY), 409, "illegal-state")
    (incident,) = operator.get("incidents?cause=requeued").json()["results"]
    assert incident["run_id"] == str(run.id)


@pytest.mark.django_db(transaction=True)
def test_a_worker_is_drained_and_a_host_declared_dead(operator: Api, auditor: Api, stage: Stage) -> None:  # noqa: F811
    worker = stage.worker.id
    assert is_problem(auditor.post(f"fleet/{worker}/drain", WHY), 403, "forbidden")
    response = operator.post(f"fleet/{worker}/drain", WHY)
    assert response.status_code == 200 and response.json()["drain_asked_at"] and response.json()["id"] == str(worker)
    assert is_problem(operator.post(f"fleet/{worker}/drain", WHY), 409, "not-to-drain")
    assert is_problem(operator.post(f"fleet/{uuid4()}/drain", WHY), 404, "not-found")
    dead = WHY | {"host": stage.worker.host}
    assert is_problem(operator.post("fleet/dead", dead), 409, "host-alive")
    assert is_problem(operator.post("fleet/dead", WHY), 422, "invalid-input")
    Process.objects.update(last_heartbeat_at=database_now() - timedelta(minutes=5))
    assert is_problem(auditor.post("fleet/dead", dead), 403, "forbidden")
    answer = operator.post("fleet/dead", dead)
    assert answer.status_code == 200 and answer.json()["processes"] >= 1
    assert is_problem(operator.post("fleet/dead", dead), 404, "not-found")
    members.hang_up()
    assert list(ActRecord.objects.order_by("id").values_list("action", flat=True)) == ["drain", "declare_dead"]


pytestmark = pytest.mark.django_db


def lose(run_id: str, seq: int = 1, *, host: str = "one", cause: str = "proof", call: str = "") -> int:
    now = database_now()
    in_doubt = [
        {"slot": "0.1/1", "attempt": 0, "tool": call, "replay_class": "unsafe_on_replay", "intent_at": now.isoformat()}
    ]
    row = Incident.objects.create(
        run_id=UUID(run_id),
        seq=seq,
        at=now,
        cause=cause,
        proof="reaped",
        worker=uuid4(),
        host=host,
        pid=42,
        epoch=1,
        reached="intent_durable",
        in_doubt=in_doubt if call else [],
        replayed=3,
        is_counted=False,
        deaths=0,
        is_stopped=False,
        last_sign_at=now,
        detected_at=now,
    )
    return row.id


def test_they_come_newest_first_in_their_documented_shape(auditor: Api, start: Callable[..., Any]) -> None:
    run = start()["id"]
    ids = [lose(run, seq, call="mail") for seq in (1, 2, 3)]
    answer = auditor.get("incidents").json()
    IncidentPage.model_validate_json(auditor.get("incidents").content)
    assert [row["id"] for row in answer["results"]] == ids[::-1]
    assert answer["results"][0]["calls"][0] | {"intent_at": ""} == {
        "slot": "0.1/1",
        "attempt": 0,
        "tool": "mail",
        "replay_class": "unsafe_on_replay",
        "intent_at": "",
        "fate": "open",
        "why": "not handled yet",
    }
    for limit in (1, 2, 3):
        assert [row["id"] for row in follow(auditor, f"incidents?limit={limit}")] == ids[::-1]


def test_what_names_nothing_is_refused_in_words(operator: Api, start: Callable[..., Any]) -> None:
    for query in ("cause=magic", "run=1", "before=-1", "host=%00", "nonsense=1"):
        assert is_problem(operator.get(f"incidents?{query}"), 400)
    assert is_problem(operator.get(f"runs/{uuid4()}/incidents"), 404)


TOOL = {"scope": "tool", "key": "charge"} | WHY


@pytest.mark.needs("limits")
def test_who_does_not_see_every_run_is_not_told_of_calls_in_flight(operator: Api, integrator: Api) -> None:
    it = operator.post("halts", TOOL).json()
    assert it["in_flight"] == [] and it["held"] == 0
    theirs = integrator.get(f"halts/{it['id']}").json()
    assert theirs["in_flight"] is None and theirs["held"] is None


def test_a_start_names_a_priority_its_caller_may_give(integrator: Api, operator: Api, auditor: Api) -> None:
    assert integrator.post("runs", START).json()["priority"] == 0
    run = integrator.post("runs", START | {"priority": 5}).json()
    assert run["priority"] == 5 == Run.objects.get(pk=run["id"]).priority
    before = Run.objects.count()
    is_problem(integrator.post("runs", START | {"priority": 6}), 422)
    assert Run.objects.count() == before, "refused, nothing was started"
    assert operator.post("runs", START | {"priority": 100}).json()["priority"] == 100
    response = operator.post(f"runs/{run['id']}/priority", {"priority": -3} | WHY)
    assert response.status_code == 200 and auditor.get(f"runs/{run['id']}").json()["priority"] == -3
    record = ActRecord.objects.filter(subject=f"run {run['id']}", action="priority").latest("id")
    assert (record.before, record.after) == ({"priority": 5}, {"priority": -3})
    is_problem(operator.post(f"runs/{run['id']}/priority", {"priority": 1}), 422)
    is_problem(operator.post(f"runs/{run['id']}/priority", {"priority": 101} | WHY), 422)


RESEARCH = WHY | {
    "name": "Research",
    "scope": "tag",
    "whose": "team:research",
    "resource": "usd",
    "limit": "500.00",
    "period": "month",
    "zone": "Europe/Berlin",
}


def made(api: Api, **changed: Any) -> dict[str, Any]:
    answer = api.post("shared-budgets", RESEARCH | changed)
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


@pytest.mark.needs("limits")
def test_a_pool_is_made_read_listed_set_again_and_switched_off(operator: Api, auditor: Api) -> None:
    one = made(operator)
    assert (one["limit"], one["used"], one["left"], one["waiting"]) == ("500.00", "0.00", "500.00", 0)
    where = f"shared-budgets/{one['id']}"
    assert auditor.get(where).json() == one and auditor.get("shared-budgets").json()["results"] == [one]
    changed = operator.post(where, WHY | {"limit": 600, "name": "Research and reading"}).json()
    assert (changed["limit"], changed["name"]) == ("600.00", "Research and reading")
    assert is_problem(operator.post(where, WHY | {"limit": 700, "if_limit": "500.00"}), 409, "shared-budget-changed")
    assert is_problem(operator.post(where, {"limit": 700}), 422, "justification-required")
    assert is_problem(operator.post(where, WHY), 422, "invalid-input")
    assert operator.post(f"{where}/off", WHY).json()["off_at"] is not None
    assert is_problem(operator.post(f"{where}/off", WHY), 409, "illegal-state")
    assert auditor.get("shared-budgets").json()["results"] == [] and auditor.get(where).json()["off_at"] is not None
    assert is_problem(auditor.get("shared-budgets/404"), 404)
