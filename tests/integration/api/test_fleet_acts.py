"""Over HTTP: requeueing a run, one or many; draining a worker; declaring a host dead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from ledger.clock import database_now
from ledger.models import ActRecord, OverrideRecord
from runs.fleet import members
from runs.models import Process
from runs.services.bulk import working
from tests.integration.api.conftest import Api, is_problem
from tests.integration.runs.conftest import stage  # noqa: F401 (fixture)
from tests.integration.runs.stage import Stage, fresh, kinds
from tests.world import agent_of, ends_with, only_for_now

pytestmark = pytest.mark.django_db(transaction=True)
WHY = {"justification": "It has said nothing for ten minutes."}


@pytest.fixture
def run(stage: Stage) -> Any:  # noqa: F811
    with only_for_now():
        found = stage.start(agent_of(ends_with("done")))
        stage.take(found)
        yield found


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


def test_many_at_once_each_with_its_record(operator: Api, run: Any) -> None:
    asked = WHY | {"action": "requeue", "runs": [str(run.id), str(uuid4())]}
    batch = operator.post("bulk", asked).json()
    assert (batch["forecast"]["may"], batch["total"]) == (1, 2)
    assert working.work(5.0) is False
    told = operator.get(f"bulk/{batch['id']}/items").json()["results"]
    assert [one["outcome"] for one in told] == ["done", "refused"]
    (record,) = OverrideRecord.objects.filter(action="requeue")
    assert record.after["batch"] == batch["id"]


def test_a_worker_is_drained_and_a_host_declared_dead(operator: Api, auditor: Api, stage: Stage) -> None:  # noqa: F811
    worker = stage.worker.id
    assert is_problem(auditor.post(f"fleet/{worker}/drain", WHY), 403, "forbidden")
    told = operator.post(f"fleet/{worker}/drain", WHY)
    assert told.status_code == 200 and told.json()["drain_asked_at"] and told.json()["id"] == str(worker)
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
