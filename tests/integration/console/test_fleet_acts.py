"""Acting on the fleet from its page: draining a worker, declaring a host dead; and requeueing a run from its own."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from ledger.clock import database_now
from ledger.models import ActRecord
from runs.models import Process
from tests.integration.console.conftest import Reader, reader  # noqa: F401 (fixture)
from tests.integration.runs.conftest import stage  # noqa: F401 (fixture)
from tests.integration.runs.stage import Stage, fresh
from tests.world import agent_of, ends_with, only_for_now

pytestmark = pytest.mark.django_db(transaction=True)
WHY = "It has said nothing for ten minutes."


@pytest.fixture
def operator(reader: Reader) -> Client:  # noqa: F811
    return reader("operator").client


def test_a_worker_is_drained_and_what_is_refused_is_said(operator: Client, stage: Stage) -> None:  # noqa: F811
    page = operator.get("/fleet/acts").content.decode()
    assert str(stage.worker.id) in page and "/fleet/acts" in operator.get("/fleet").content.decode()
    no = operator.post("/fleet/drains", {"process": str(stage.worker.id), "justification": ""})
    assert no.status_code == 422 and "data-refused" in no.content.decode()
    assert operator.post("/fleet/drains", {"process": "x", "justification": WHY}).status_code == 422
    done = operator.post("/fleet/drains", {"process": str(stage.worker.id), "justification": WHY})
    assert done.status_code == 302 and Process.objects.get(pk=stage.worker.id).drain_asked_at is not None
    assert ">draining<" in operator.get("/fleet").content.decode()
    assert str(stage.worker.id) not in operator.get("/fleet/acts").content.decode()


def test_a_host_is_declared_dead_once_it_is_silent(operator: Client, stage: Stage) -> None:  # noqa: F811
    form = {"host": stage.worker.host, "justification": WHY}
    alive = operator.post("/fleet/deaths", form)
    assert alive.status_code == 409 and "shows signs of life" in alive.content.decode()
    Process.objects.update(last_heartbeat_at=database_now() - timedelta(minutes=5))
    assert operator.post("/fleet/deaths", form).status_code == 302
    assert Process.objects.get(pk=stage.worker.id).end_cause == "operator"
    assert ActRecord.objects.filter(action="declare_dead", justification=WHY).exists()


def test_a_run_is_requeued_from_its_page(operator: Client, stage: Stage) -> None:  # noqa: F811
    with only_for_now():
        run = stage.start(agent_of(ends_with("done")))
        assert "act-requeue" not in operator.get(f"/runs/{run.id}").content.decode()
        stage.take(run)
        assert "act-requeue" in operator.get(f"/runs/{run.id}").content.decode()
        assert operator.post(f"/runs/{run.id}/requeues", {"justification": ""}).status_code == 422
        assert operator.post(f"/runs/{run.id}/requeues", {"justification": WHY}).status_code == 302
        assert fresh(run).owner is None
        page = operator.get(f"/runs/{run.id}").content.decode()
        assert "given back to the pool" in page and "taken from its worker" in page
