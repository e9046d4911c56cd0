"""The console's page of recoveries, and the way there."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from ledger.clock import database_now
from runs.models import Process
from tests.api.test_incidents import lose
from tests.console.conftest import Reader, start

pytestmark = pytest.mark.django_db


def test_the_fleet_page_leads_to_them(operator: Reader) -> None:
    assert "none so far" in operator.read("/fleet")
    lose(str(start().id))
    assert "the last one" in operator.read("/fleet") and b"/fleet/recoveries" in operator.get("/fleet").content


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


def test_each_says_why_where_and_what_became_of_its_calls(operator: Reader) -> None:
    run = start()
    lose(str(run.id), call="write", cause="host_gone", host="lost.example")
    page = operator.read("/fleet/recoveries")
    for words in (
        "host gone",
        "pid 42 on lost.example",
        "intent durable",
        "3 outcomes on record",
        "write open",
        "epoch 1",
    ):
        assert words in page, words
    assert f"/runs/{run.id}#tl-1".encode() in operator.get("/fleet/recoveries").content


def test_filters_and_pages_live_in_the_address(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    from runs.console.agent_views import RecoveriesPage

    monkeypatch.setattr(RecoveriesPage, "shown", 2)
    run = str(start().id)
    for seq in range(1, 6):
        lose(run, seq, host="here" if seq < 5 else "there")
    assert operator.read("/fleet/recoveries").count("pid 42") == 2
    assert operator.read("/fleet/recoveries", host="there").count("pid 42") == 1
    assert "No recovery fits" in operator.read("/fleet/recoveries", run="not an id")
    assert "No recovery fits" in operator.read("/fleet/recoveries", run=str(UUID(int=1)))
    assert b"cause=proof" in operator.get("/fleet/recoveries", cause="proof", before="4").content


def test_hostile_names_are_only_text(operator: Reader) -> None:
    lose(str(start().id), host="<script>x</script>", call="<img src=x>")
    raw = operator.get("/fleet/recoveries").content
    assert b"<script>x" not in raw and b"<img" not in raw
