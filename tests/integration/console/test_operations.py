"""The operators' pages: limits, shared budgets, fleet actions and recoveries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from ledger.clock import database_now
from ledger.models import ActRecord
from runs.models import Process
from tests.integration.api.test_fleet_acts import lose
from tests.integration.console.conftest import Reader, start
from tests.integration.runs.conftest import stage  # noqa: F401 (fixture)
from tests.integration.runs.stage import Stage, fresh
from tests.world import agent_of, ends_with, only_for_now

pytestmark = pytest.mark.django_db
WHY = "the other side answers nonsense"


@pytest.mark.needs("limits")
def test_an_operator_sets_resets_opens_and_closes_with_a_reason(operator: Reader) -> None:
    fields = {"key": "tool:charge", "justification": "the other side says so"}
    assert "No limits" in operator.get("/limits").content.decode()
    assert operator.post("/limits/settings", **fields, per_minute="60", at_once="4").status_code == 302
    page = operator.get("/limits").content.decode()
    assert "tool:charge" in page and "per_minute 60" in page and "at_once 4" in page
    assert operator.post("/limits/openings", **fields, per_minute="").status_code == 302
    assert "manually" in operator.get("/limits").content.decode()
    assert operator.post("/limits/closings", **fields).status_code == 302
    assert operator.post("/limits/resets", **fields).status_code == 302
    actions = ActRecord.objects.filter(subject="limit tool:charge").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["limit", "breaker_open", "breaker_close", "limit_reset"]


@pytest.fixture
def browser(reader: Callable[..., Reader]) -> Client:
    return reader("operator").client


@pytest.mark.django_db(transaction=True)
def test_a_worker_is_drained_and_what_is_refused_is_said(browser: Client, stage: Stage) -> None:  # noqa: F811
    page = browser.get("/fleet/acts").content.decode()
    assert str(stage.worker.id) in page and "/fleet/acts" in browser.get("/fleet").content.decode()
    no = browser.post("/fleet/drains", {"process": str(stage.worker.id), "justification": ""})
    assert no.status_code == 422 and "data-refused" in no.content.decode()
    assert browser.post("/fleet/drains", {"process": "x", "justification": WHY}).status_code == 422
    done = browser.post("/fleet/drains", {"process": str(stage.worker.id), "justification": WHY})
    assert done.status_code == 302 and Process.objects.get(pk=stage.worker.id).drain_asked_at is not None
    assert ">draining<" in browser.get("/fleet").content.decode()
    assert str(stage.worker.id) not in browser.get("/fleet/acts").content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_host_is_declared_dead_once_it_is_silent(browser: Client, stage: Stage) -> None:  # noqa: F811
    form = {"host": stage.worker.host, "justification": WHY}
    alive = browser.post("/fleet/deaths", form)
    assert alive.status_code == 409 and "sent a heartbeat within" in alive.content.decode()
    Process.objects.update(last_heartbeat_at=database_now() - timedelta(minutes=5))
    assert browser.post("/fleet/deaths", form).status_code == 302
    assert Process.objects.get(pk=stage.worker.id).end_cause == "operator"
    assert ActRecord.objects.filter(action="declare_dead", justification=WHY).exists()


@pytest.mark.django_db(transaction=True)
def test_a_run_is_requeued_from_its_page(browser: Client, stage: Stage) -> None:  # noqa: F811
    with only_for_now():
        run = stage.start(agent_of(ends_with("done")))
        assert "act-requeue" not in browser.get(f"/runs/{run.id}").content.decode()
        stage.take(run)
        assert "act-requeue" in browser.get(f"/runs/{run.id}").content.decode()
        assert browser.post(f"/runs/{run.id}/requeues", {"justification": ""}).status_code == 422
        assert browser.post(f"/runs/{run.id}/requeues", {"justification": WHY}).status_code == 302
        assert fresh(run).owner is None
        page = browser.get(f"/runs/{run.id}").content.decode()
        assert "requeued" in page and "taken from its worker" in page


def test_helpers_stand_apart_from_what_an_operator_looks_for(operator: Reader, settings: Any) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"database_url": "postgresql://others.reach.it/too"}
    )
    at = database_now()
    for pid, kind in ((11, "worker"), (12, "cluster"), (13, "cluster")):
        Process.objects.create(
            id=uuid4(),
            kind=kind,
            host="far.example",
            boot="elsewhere/1",
            pid=pid,
            born_ticks=1,
            started_at=at,
            last_heartbeat_at=at,
        )
    listed, _, helpers = operator.get("/fleet").content.decode().partition('<details class="more body" id="helpers"')
    assert 'id="p-worker-11"' in listed and "p-cluster" not in listed and ">cluster<" not in listed
    assert "2 helper processes" in helpers and 'id="p-cluster-13"' in helpers


def test_hostile_names_are_only_text(operator: Reader) -> None:
    lose(str(start().id), host="<script>x</script>", call="<img src=x>")
    raw = operator.get("/fleet/recoveries").content
    assert b"<script>x" not in raw and b"<img" not in raw
