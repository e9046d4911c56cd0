"""Rows that hold what none of our code writes: everybody else's pages answer, verification names the run, and the runs after it are checked."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from approvals.models import Approval, Decision
from ledger.verification import verify, verify_all
from runs.models import Incident, Run
from tests.console.conftest import Reader, start
from tests.console.stage import question, working

pytestmark = pytest.mark.django_db(transaction=True)


def other_hands(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            cursor.execute(statement, values)
        finally:
            cursor.execute("RESET session_replication_role")


@pytest.fixture
def asked() -> Run:
    """A run that waits for finance."""
    run = start()
    with working():
        question(run)
    return Run.objects.get(pk=run.pk)


ODD = {
    "a wait's detail is a list": "UPDATE runs_wait SET detail = '[1, 2]' WHERE run_id = %s",
    "a wait's detail is null": "UPDATE runs_wait SET detail = 'null' WHERE run_id = %s",
    "a wait's queue is an object": """UPDATE runs_wait SET detail = '{"queue": {"a": 1}}' WHERE run_id = %s""",
    "an event's bytes are no text": "UPDATE ledger_event SET clear = '\\xff' WHERE run_id = %s AND seq = 2",
    "an event's bytes are a number": "UPDATE ledger_event SET clear = '5' WHERE run_id = %s AND seq = 2",
    "the epoch is negative": "UPDATE ledger_event SET epoch = -5 WHERE run_id = %s AND seq = 2",
    "its head is gone": "DELETE FROM ledger_head WHERE run_id = %s",
    "its wait is gone": "DELETE FROM runs_wait WHERE run_id = %s",
    "its plan is no text": "UPDATE approvals_approval SET plan = '\\x00' WHERE run_id = %s",
    "its plan is a number": "UPDATE approvals_approval SET plan = '5' WHERE run_id = %s",
    "the head's epoch is no claim's": "UPDATE ledger_head SET epoch = 99 WHERE run_id = %s",
}


@pytest.mark.parametrize("what", ODD)
def test_a_row_that_makes_no_sense_is_its_runs_trouble_alone(operator: Reader, asked: Run, what: str) -> None:
    sound = start()
    other_hands(ODD[what], asked.id)
    for path in ("/", "/runs", "/inbox", "/audit", f"/runs/{asked.id}", f"/runs/{asked.id}/verification", "/audit/verification"):
        assert operator.get(path).status_code == 200, path
    for path in ("runs", f"runs/{asked.id}", f"runs/{asked.id}/events", f"runs/{asked.id}/verification", "verification", "approvals", f"runs/{asked.id}/overrides"):
        assert operator.get(f"/api/v1/{path}").status_code == 200, path
    found = {each.run_id: each.problems for each in verify_all()}
    assert found[asked.id] != [] and found[sound.id] == []


@pytest.mark.parametrize(("what", "code"), [("its head is gone", "record-damaged"), ("its wait is gone", "record-damaged"), ("its plan is no text", "stale-plan")])
def test_a_decision_that_the_record_can_not_bear_is_refused_by_name(finance: Reader, asked: Run, what: str, code: str) -> None:
    approval = Approval.objects.get(run=asked)
    other_hands(ODD[what], asked.id)
    body = {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "Fine."}
    answer = finance.client.post(f"/api/v1/approvals/{approval.id}/decision", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert finance.post(f"/approvals/{approval.id}/decision", **body).status_code == 409
    assert not Decision.objects.exists()


def test_an_incident_that_makes_no_sense_hides_no_other(operator: Reader, asked: Run) -> None:
    other_hands(
        "INSERT INTO runs_incident (run_id, seq, at, cause, proof, worker, host, pid, epoch, reached, in_doubt, replayed, is_counted, deaths, is_stopped,"
        " detected_at) VALUES (%s, 1, clock_timestamp(), 'proof', '', gen_random_uuid(), 'h', 1, 1, 'claimed', '5', 0, false, 0, false, clock_timestamp())",
        asked.id,
    )
    assert Incident.objects.count() == 1
    for path in ("/fleet/recoveries", "/api/v1/incidents", f"/api/v1/runs/{asked.id}/incidents"):
        assert operator.get(path).status_code == 200, path
    assert verify(asked.id).problems != []
