"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.bulk import services
from durableagents.contrib.bulk.services import BatchBody
from ledger.actors import Actor
from runs.models import Run
from tests.integration.api.conftest import Api
from tests.roles import EVERY, STOP

API = [
    ("GET", EVERY, "api-bulk api-bulk-one api-bulk-items"),
    ("POST", STOP, "api-bulk api-bulk-start api-bulk-stop"),
]
READ = [
    (EVERY, "batches batch"),
    (STOP, "new_batch"),
]
ACT = [
    (STOP, "new_batch batch_starts batch_stops"),
]


def make_theirs(operator: Api, run: Run) -> dict[str, str]:
    many = {"action": "pause", "runs": [str(run.pk)], "justification": "Hold on.", "start": False}
    return {"<uuid:batch_id>": operator.post("bulk", many).json()["id"]}


def make_parts(run: Run, by: Actor) -> dict[str, Any]:
    body = BatchBody(action="pause", runs=[run.pk], justification="Hold on.", start=False)
    return {"batch_id": services.create(body, [run.pk], {"runs": 1}, by=by, held=frozenset({"operator"})).pk}


def sample_batch() -> list[Any]:
    run = Run.objects.filter(state="pending")[0].id
    body = BatchBody(action="pause", runs=[run], justification="Hold on.", start=False)
    by = Actor("user", "olga", role="operator", person=1)
    return [services.create(body, [run], {"runs": 1}, by=by, held=frozenset({"operator"})).pk]


SAMPLES = {"batch_id": sample_batch}
