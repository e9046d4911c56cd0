"""Starting, reading and steering runs through the API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils.timezone import now as clock_now

from ledger.models import Head, OverrideRecord
from runs.models import Process, Served
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem

pytestmark = pytest.mark.django_db
BECAUSE = {"justification": "the vendor asked for time"}


def test_a_started_run_is_there_with_all_its_parts(integrator: Api, auditor: Api) -> None:
    answer = integrator.post("runs", START | {"tags": ["a", "b"]})
    run = answer.json()
    assert answer.status_code == 201 and answer["Location"] == f"/api/v1/runs/{UUID(run['id'])}"
    assert auditor.get(answer["Location"]).json() == run
    assert (run["agent"], run["version"], run["state"]) == ("order", "1.0.0", "pending")
    assert run["waiting_for"] == [] and run["step_index"] == 0 and run["epoch"] == 0
    assert run["last_checkpoint_at"] is None and run["output"] is None and run["error"] is None
    assert run["tags"] == ["a", "b"] and run["created_by"] == "key:integrator"
    assert datetime.fromisoformat(run["created_at"]).tzinfo is not None
    assert auditor.get("runs").json()["results"] == [run]


@each_case(
    ("graph_id", "changed", "why"),
    [
        ("order@1.0.0", {}, "waiting for a worker"),
        ("other@1.0.0", {}, "no running worker has order@1.0.0"),
        ("order@1.0.0", {"is_quarantined": True}, "no worker is running"),
        ("order@1.0.0", {"ended_at": clock_now()}, "no worker is running"),
        ("order@1.0.0", {"last_heartbeat_at": clock_now() - timedelta(minutes=1)}, "no worker is running"),
    ],
)
def test_the_answer_to_a_start_says_who_drives_it_as_reading_does(
    integrator: Api, auditor: Api, graph_id: str, changed: dict[str, Any], why: str
) -> None:
    is_quarantined = changed.pop("is_quarantined", False)
    known = {
        "kind": "worker",
        "host": "h",
        "boot": "b",
        "pid": 1,
        "born_ticks": 1,
        "started_at": clock_now(),
        "last_heartbeat_at": clock_now(),
    }
    worker = Process.objects.create(id=uuid4(), **(known | changed))
    Served.objects.create(worker=worker.id, graph_id=graph_id, is_quarantined=is_quarantined)
    for headers in ({}, {"Idempotency-Key": "k"}):
        answer = integrator.post("runs", START, headers=headers)
        assert answer.json()["status"]["sentence"].endswith(f" {why}.")
        assert auditor.get(answer["Location"]).json() == answer.json()


def test_a_bare_name_is_the_newest_version(start: Callable[..., Any]) -> None:
    assert start(agent="order")["version"] == "1.1.0"


def test_each_act_leaves_its_record(operator: Api, auditor: Api, start: Callable[..., Any]) -> None:
    run = start()["id"]
    states = [operator.post(f"runs/{run}/{act}", BECAUSE).json()["state"] for act in ("pause", "resume", "cancel")]
    assert states == ["paused", "pending", "cancelled"]
    cancelled = auditor.get(f"runs/{run}").json()["cancelled"]
    assert cancelled == {"by": "key:operator", "why": BECAUSE["justification"]}
    records = auditor.get(f"runs/{run}/overrides").json()["results"]
    assert [record["action"] for record in records] == ["pause", "resume", "cancel"]
    for record in records:
        assert (record["by"], record["role"], record["auth"]) == ("key:operator", "operator", "api_key")
        assert record["justification"] == BECAUSE["justification"] and record["address"] == "127.0.0.1"
        assert len(record["chain"]) == 64 and record["before"] != record["after"]


@each_case(
    ("before", "act"),
    [
        ([], "resume"),
        ([], "retry"),
        (["cancel"], "pause"),
        (["cancel"], "resume"),
        (["cancel"], "retry"),
    ],
)
def test_a_forbidden_act_changes_nothing(operator: Api, start: Callable[..., Any], before: list[str], act: str) -> None:
    run = start()["id"]
    for step in before:
        assert operator.post(f"runs/{run}/{step}", BECAUSE).status_code == 200
    known = operator.get(f"runs/{run}").json()
    assert is_problem(operator.post(f"runs/{run}/{act}", BECAUSE), 409, "illegal-state")
    assert operator.get(f"runs/{run}").json() == known
    assert OverrideRecord.objects.count() == len(before)


def test_a_repeated_pause_or_cancel_answers_with_the_present_state(operator: Api, start: Callable[..., Any]) -> None:
    run = start()["id"]
    for act, state in (("pause", "paused"), ("cancel", "cancelled")):
        assert operator.post(f"runs/{run}/{act}", BECAUSE).json()["state"] == state
        known = operator.get(f"runs/{run}").json()
        assert operator.post(f"runs/{run}/{act}", BECAUSE).json() == known
    assert OverrideRecord.objects.count() == 2
    # Nothing was undone, so a wish to undo is no repetition.
    assert is_problem(operator.post(f"runs/{run}/cancel", BECAUSE | {"effects": "undo"}), 409)


def test_an_act_on_another_revision_than_was_seen_does_nothing(operator: Api, start: Callable[..., Any]) -> None:
    run = start()["id"]
    seen = operator.get(f"runs/{run}")["ETag"]
    assert operator.post(f"runs/{run}/pause", BECAUSE, headers={"If-Match": seen}).status_code == 200
    known = operator.get(f"runs/{run}")
    assert is_problem(operator.post(f"runs/{run}/cancel", BECAUSE, headers={"If-Match": seen}), 412, "changed")
    assert operator.get(f"runs/{run}").json() == known.json()
    matching = {"If-Match": f'"other", {known["ETag"]}', "Idempotency-Key": "k"}
    first = operator.post(f"runs/{run}/cancel", BECAUSE, headers=matching)
    again = operator.post(f"runs/{run}/cancel", BECAUSE, headers=matching)
    assert first.json()["state"] == "cancelled" and again.content == first.content
    assert "Idempotent-Replayed" not in first and again["Idempotent-Replayed"] == "true"


def test_if_match_where_nothing_has_an_etag_is_refused_and_nothing_done(
    operator: Api, integrator: Api, start: Callable[..., Any]
) -> None:
    run = start()["id"]
    for given in ('"nope"', "*"):
        for caller, address, body in (
            (integrator, f"runs/{run}/signals/go", {}),
            (integrator, "runs", START),
        ):
            refused = caller.post(address, body, headers={"If-Match": given})
            assert is_problem(refused, 400) and "no ETag" in refused.json()["detail"]
    assert len(operator.get("runs").json()["results"]) == 1


def test_a_resume_token_is_of_its_run_and_epoch(operator: Api, start: Callable[..., Any]) -> None:
    run, other = (start()["id"] for _ in range(2))
    for each in (run, other):
        operator.post(f"runs/{each}/pause", BECAUSE)
    token, foreign = (operator.get(f"runs/{each}").json()["resume_token"] for each in (run, other))
    for wrong in (foreign, token[:-1] + ("A" if token[-1] != "A" else "B"), "", "ü", token + "A", "A" * 101):
        assert is_problem(operator.post(f"runs/{run}/resume", BECAUSE | {"resume_token": wrong}), 422, "invalid-input")
    Head.objects.filter(run_id=run).update(epoch=1)
    assert is_problem(operator.post(f"runs/{run}/resume", BECAUSE | {"resume_token": token}), 412, "changed")
    Head.objects.filter(run_id=run).update(epoch=0)
    assert operator.post(f"runs/{run}/resume", BECAUSE | {"resume_token": token}).json()["state"] == "pending"
    assert operator.post(f"runs/{run}/cancel", BECAUSE).json()["resume_token"] is None


@each_case("body", [{}, {"verdict": "maybe"}, {"verdict": "happened", "justification": 5}])
def test_a_verdict_that_is_none_is_refused(operator: Api, start: Callable[..., Any], body: dict[str, Any]) -> None:
    assert is_problem(operator.post(f"runs/{start()['id']}/reconcile", body), 422)


def test_agents_say_how_to_start_them(auditor: Api) -> None:
    rows = {row["graph_id"]: row for row in auditor.get("agents").json()["results"]}
    order = rows["order@1.0.0"]
    assert set(order["input_schema"]["properties"]) == {"item", "amount"}
    assert order["samples"][0]["input"] == {"item": "chair", "amount": 1}
    assert rows["order@1.1.0"]["version"] == "1.1.0"
    one = auditor.get("agents?limit=1").json()
    assert len(one["results"]) == 1 and one["next"]
