"""Bulk operations over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from durableagents.contrib.bulk import working
from durableagents.contrib.bulk.models import Batch, BatchItem
from ledger.models import OverrideRecord
from runs.models import Run
from tests.cases import each_case
from tests.integration.api.conftest import (  # noqa: F401 (fixtures)
    Api,
    auditor,
    caller,
    integrator,
    is_problem,
    operator,
    order_agent,
    start,
)
from tests.integration.api.test_fleet_acts import (
    WHY,
    run,  # noqa: F401 (fixtures)
)
from tests.integration.runs.conftest import stage  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db


REASON = "The supplier is down."


@pytest.mark.django_db(transaction=True)
def test_many_at_once_each_with_its_record(operator: Api, run: Any) -> None:
    fields = WHY | {"action": "requeue", "runs": [str(run.id), str(uuid4())]}
    batch = operator.post("bulk", fields).json()
    assert (batch["forecast"]["may"], batch["total"]) == (1, 2)
    assert working.work(5.0) is False
    results = operator.get(f"bulk/{batch['id']}/items").json()["results"]
    assert [one["outcome"] for one in results] == ["done", "refused"]
    (record,) = OverrideRecord.objects.filter(action="requeue")
    assert record.after["batch"] == batch["id"]


def test_one_request_pauses_all_that_fit_and_its_repeat_is_the_same_act(operator: Api, start: Any) -> None:
    ids = {start()["id"] for _ in range(3)}
    key = {"Idempotency-Key": "pause-1"}
    answer = ask(operator, headers=key, filter={"agent": "order", "state": "pending"})
    assert answer.status_code == 202, answer.content
    row = answer.json()
    assert (row["state"], row["total"], row["left"]) == ("running", 3, 3) and row["forecast"]["may"] == 3
    again = ask(operator, headers=key, filter={"agent": "order", "state": "pending"})
    assert again.content == answer.content and Batch.objects.count() == 1
    assert is_problem(ask(operator, headers=key, filter={"agent": "order"}), 422, "idempotency-mismatch")
    assert not working.work(60)
    row = operator.get(f"bulk/{row['id']}").json()
    assert (row["state"], row["done"], row["refused"], row["left"]) == ("done", 3, 0, 0)
    page = operator.get(f"bulk/{row['id']}/items", limit=2).json()
    rest = operator.get(page["next"]).json()
    assert {item["run"] for item in [*page["results"], *rest["results"]]} == ids and rest["next"] is None
    assert operator.get(f"bulk/{row['id']}/items", outcome="refused").json()["results"] == []
    records = operator.get(f"runs/{min(ids)}/overrides").json()["results"]
    assert [record["after"]["batch"] for record in records] == [row["id"]]
    assert operator.get("bulk").json()["results"][0]["id"] == row["id"]


@each_case(
    ("body", "field"),
    [
        ({"filter": {"state": "asleep"}}, "filter.state"),
        ({"runs": ["x"]}, "runs.0"),
        ({"filter": {"colour": "red"}}, "filter.colour"),
        ({}, "filter"),
    ],
)
def test_what_can_not_be_meant_is_named(operator: Api, body: dict[str, Any], field: str) -> None:
    answer = ask(operator, **body)
    assert is_problem(answer, 422) and answer.json()["errors"][0]["field"] == field, answer.json()
    assert not Batch.objects.exists() and not BatchItem.objects.exists()


def test_an_integrator_acts_on_and_sees_their_own(integrator: Api, operator: Api, start: Any, caller: Any) -> None:
    mine = start()["id"]
    others = operator.post("runs", {"agent": "order", "input": {"item": "desk", "amount": 1}}).json()["id"]
    row = ask(integrator, runs=[mine, others]).json()
    assert not working.work(60)
    fields = {item["run"]: item for item in integrator.get(f"bulk/{row['id']}/items").json()["results"]}
    assert fields[mine]["outcome"] == "done" and fields[others]["code"] == "not-found"
    assert ask(integrator, filter={"agent": "order"}).json()["total"] == 1, "what they don't see doesn't fit"
    seen = ask(operator, runs=[others], start=False).json()["id"]
    assert is_problem(integrator.get(f"bulk/{seen}"), 404)
    assert [one["id"] for one in integrator.get("bulk").json()["results"]].count(seen) == 0
    assert is_problem(ask(integrator, "retry", runs=[mine]), 403, "forbidden")
    assert str(Run.objects.get(pk=others).state) == "pending"


def ask(api: Api, action: str = "pause", headers: Any = None, **more: Any) -> Any:
    return api.post("bulk", {"action": action, "justification": REASON} | more, headers=headers)
