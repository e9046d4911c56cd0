"""The console's page of recoveries, and the way there."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from ledger.clock import database_now
from runs.models import Process
from tests.integration.api.test_incidents import lose
from tests.integration.console.conftest import Reader, start

pytestmark = pytest.mark.django_db


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
