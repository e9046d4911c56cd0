"""Whole runs through the API with a worker: waits, callbacks, decisions, verdicts, endings."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from approvals.api.schemas import ApprovalPage, ApprovalRow
from ledger.api.schemas import EntryPage, EventPage
from runs.api.schemas import MessagePage, RunRow
from runs.models import Wait
from runs.workers.run_loop import Host
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem
from tests.integration.api.worker import TOKENS, purchase_agent, working
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
YES = {"verdict": "approve", "justification": "within budget"}


class Story:
    def __init__(self, caller: Callable[[Any], Api], host: Host) -> None:
        self.caller, self.host = caller, host
        self.auditor = caller("auditor")
        self.id = ""

    def start(self, **changed: Any) -> Story:
        order = {"item": "chair", "amount": 500} | changed
        self.id = self.caller("integrator").post("runs", {"agent": "purchase", "input": order}).json()["id"]
        return self

    def now(self) -> dict[str, Any]:
        return self.auditor.get(f"runs/{self.id}").json()

    def until(self, *states: str, kind: str | None = None) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self.host.ring()  # no task queue runs here
            run = self.now()
            if run["state"] in states and (kind is None or [wait["kind"] for wait in run["waiting_for"]] == [kind]):
                RunRow.model_validate(run)
                return run
            time.sleep(0.05)
        pytest.fail(f"the run is {run['state']} and waits for {run['waiting_for']}")

    def call_back(self, body: Any = None, token: str | None = None) -> Any:
        return self.caller(None).post(f"callbacks/{token or TOKENS[self.id]}", {"price": 480} if body is None else body)

    def approval(self) -> dict[str, Any]:
        (row,) = self.auditor.get(f"approvals?state=open&run_id={self.id}").json()["results"]
        return ApprovalRow.model_validate(row) and row

    def decide(
        self, role: str | None = "approver_finance", *, approval: dict[str, Any] | None = None, **changed: Any
    ) -> Any:
        found = approval or self.approval()
        body = YES | {"plan_hash": found["plan_hash"]} | changed
        return self.caller(role).post(
            f"approvals/{found['id']}/decision", {k: v for k, v in body.items() if v is not ...}
        )

    def to_the_gate(self) -> dict[str, Any]:
        self.until("waiting_tool", kind="webhook")
        assert self.call_back().status_code == 200
        return self.until("waiting_human", kind="approval")


@pytest.fixture
def story(caller: Callable[[Any], Api]) -> Iterator[Story]:
    with purchase_agent(), working() as host:
        yield Story(caller, host)


@pytest.fixture
def at_gate(story: Story) -> Story:
    story.start().to_the_gate()
    return story


def test_a_purchase_from_start_to_end_and_its_records(story: Story) -> None:
    waiting = story.start().until("waiting_tool", kind="webhook")
    (wait,) = waiting["waiting_for"]
    assert wait["since"] < wait["deadline"] and wait["detail"]["tool"] == "ask_quote"
    assert waiting["status"]["reason"] == "callback" and waiting["usage"]["model_calls"] == 1
    story.to_the_gate()
    approval = story.approval()
    assert approval["arguments"] == {"item": "chair", "amount": 500, "ending": "well"}
    assert (approval["queue"], approval["state"], approval["revision"], approval["tool"]) == (
        "finance_po",
        "open",
        1,
        "pay",
    )
    assert approval["evidence"][0]["content"] == {"price": 480} and approval["previous"] is None
    decided = story.decide()
    assert decided.status_code == 200 and decided.json()["state"] == "approved"
    assert decided.json()["decision"]["role"] == "approver_finance"
    done = story.until("completed")
    assert done["output"] == {"receipt": "paid 500"} and done["error"] is None and done["waiting_for"] == []
    assert done["step_index"] >= 3 and done["ended_at"] and done["last_checkpoint_at"] and done["epoch"] >= 1
    (listed,) = story.auditor.get("runs?state=completed").json()["results"]
    assert listed == done

    address = f"runs/{story.id}"
    entries = EntryPage.model_validate(story.auditor.get(f"{address}/ledger").json()).results
    assert [(entry.tool, entry.fact) for entry in entries] == [
        ("ask_quote", "pending"),
        ("ask_quote", "committed"),
        ("pay", "pending"),
        ("pay", "committed"),
    ]
    assert entries[-1].external_id == "paid 500" and entries[-1].key == entries[-2].key is not None
    results = MessagePage.model_validate(story.auditor.get(f"{address}/transcript").json()).results
    text = json.dumps([message.content for message in results])
    assert "What does a chair cost?" in text and "Guess the price." in text and "Let me think." in text
    assert [message.seq for message in results] == sorted(message.seq for message in results)
    events = EventPage.model_validate(story.auditor.get(f"{address}/events").json()).results
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {"RunCreated", "ModelResponded", "CallbackReceived", "ApprovalDecided", "RunCompleted"} <= {
        event.kind for event in events
    }


def test_callbacks_answer_alike_and_count_once(story: Story) -> None:
    story.start().until("waiting_tool", kind="webhook")
    first = story.call_back()
    assert first.status_code == 200
    story.until("waiting_human")
    for body in ({"price": 480}, {"price": 1}, [], {"other": None}):
        again = story.call_back(body)
        assert (again.status_code, again.content) == (200, first.content)
    events = story.auditor.get(f"runs/{story.id}/events").json()["results"]
    assert Counter(event["kind"] for event in events)["CallbackReceived"] == 1


def test_a_forged_callback_finds_nothing(story: Story) -> None:
    story.start().until("waiting_tool", kind="webhook")
    for token in (TOKENS[story.id][:-1], TOKENS[story.id] + "A", "x" * 3000, "%00"):
        assert is_problem(story.call_back(token=token), 404, "not-found")
    assert is_problem(story.caller(None).send(f"callbacks/{TOKENS[story.id]}", b"{"), 400)
    assert is_problem(story.caller(None).send(f"callbacks/{TOKENS[story.id]}", b""), 400)
    assert story.now()["state"] == "waiting_tool"


@each_case("role", ["integrator", "operator", "approver_legal", "auditor", "nobody", "superuser"])
def test_only_the_queues_own_role_decides(at_gate: Story, role: str) -> None:
    assert is_problem(at_gate.decide(role), 403, "forbidden")
    assert at_gate.approval()["state"] == "open"


@each_case(
    ("changed", "status", "code"),
    [
        ({"justification": ""}, 422, "justification-required"),
        ({"justification": ...}, 422, "justification-required"),
        ({"verdict": "maybe"}, 422, "invalid-input"),
        ({"verdict": ...}, 422, "invalid-input"),
        ({"plan_hash": ...}, 422, "invalid-input"),
        ({"plan_hash": 5}, 422, "invalid-input"),
        ({"extra": 1}, 422, "invalid-input"),
        ({"plan_hash": "0" * 64}, 409, "stale-plan"),
    ],
)
def test_a_decision_that_is_none_changes_nothing(
    at_gate: Story, changed: dict[str, Any], status: int, code: str
) -> None:
    assert is_problem(at_gate.decide(**changed), status, code)
    assert at_gate.approval()["state"] == "open" and at_gate.now()["state"] == "waiting_human"


def test_a_rejection_fails_the_run_with_the_reason(story: Story) -> None:
    story.start().to_the_gate()
    assert story.decide(verdict="reject", justification="too dear").json()["state"] == "rejected"
    failed = story.until("failed")
    assert failed["error"]["message"] == "too dear" and failed["error"]["code"] == "rejected"
    assert failed["output"] is None and "retry" in failed["status"]["actions"]
    page = ApprovalPage.model_validate(story.auditor.get("approvals?state=rejected&queue=finance_po").json())
    assert page.results[0].decision is not None and page.results[0].decision.justification == "too dear"


def test_a_failed_run_can_be_retried_and_a_paused_one_waits(story: Story) -> None:
    story.start(ending="failure").until("waiting_tool", kind="webhook")
    operator = story.caller("operator")
    assert operator.post(f"runs/{story.id}/pause", {"justification": "hold"}).json()["state"] == "paused"
    paused = story.now()
    assert paused["status"]["reason"] == "paused" and [wait["kind"] for wait in paused["waiting_for"]] == ["webhook"]
    story.call_back()
    assert story.now()["state"] == "paused"
    operator.post(f"runs/{story.id}/resume", {"justification": "go"})
    assert story.until("failed")["error"]["code"] == "closed"
    # With a key, the result is read in the act's own transaction, before the worker has it.
    once = {"Idempotency-Key": "again"}
    retried = operator.post(f"runs/{story.id}/retry", {"justification": "again"}, headers=once).json()
    assert retried["state"] == "running" and retried["error"] is None and retried["ended_at"] is None
    assert story.until("failed")["error"]["message"] == "The shop is closed."
    acts = story.auditor.get(f"runs/{story.id}/overrides").json()["results"]
    assert [act["action"] for act in acts] == ["pause", "resume", "retry"]


@pytest.mark.parametrize("verdict", ["happened", "did_not", "fail"])
def test_an_unknown_outcome_is_settled_by_an_operator(story: Story, verdict: str) -> None:
    story.start(ending="unknown").until("waiting_tool", kind="webhook")
    story.call_back()
    story.until("waiting_human", kind="reconcile")
    assert story.auditor.get(f"approvals?run_id={story.id}").json()["results"] == []
    body = {
        "verdict": verdict,
        "justification": "asked the post office",
        "receipt": {"receipt": "R1"} if verdict == "happened" else None,
    }
    for role in ("integrator", "auditor", "approver_finance", "superuser"):
        assert is_problem(story.caller(role).post(f"runs/{story.id}/reconcile", body), 403)
    operator = story.caller("operator")
    assert is_problem(
        operator.post(f"runs/{story.id}/reconcile", body | {"justification": " "}), 422, "justification-required"
    )
    if verdict == "happened":
        refused = operator.post(f"runs/{story.id}/reconcile", body | {"receipt": 5})
        assert is_problem(refused, 422) and not re.search("pydantic|https?:", refused.json()["errors"][0]["problem"])
    (wait,) = story.now()["waiting_for"]
    answered = Wait.objects.get(run_id=story.id, kind="webhook")
    for other in (uuid4(), answered.id):
        refused = operator.post(f"runs/{story.id}/reconcile", body | {"wait_id": str(other)})
        assert is_problem(refused, 404, "not-found"), "a verdict on another call settles nothing here"
        assert "settled" not in refused.json()["detail"], "of what never was nobody says that it is over"
    named = body | {"wait_id": wait["id"]}
    assert operator.post(f"runs/{story.id}/reconcile", named).status_code == 200
    again = operator.post(f"runs/{story.id}/reconcile", named)
    assert is_problem(again, 409, "illegal-state"), "nor does one that is sent twice"
    assert "That call has already been settled" in again.json()["detail"]
    if verdict == "happened":
        story.until("waiting_human", kind="approval")
    elif verdict == "did_not":
        story.until("waiting_human", kind="reconcile")
        facts = [
            row["fact"]
            for row in story.auditor.get(f"runs/{story.id}/ledger").json()["results"]
            if row["tool"] == "send_letter"
        ]
        assert facts == ["pending", "unknown", "reconciled", "pending", "unknown"]
    else:
        assert story.until("failed")["error"]["code"] == "unknown_outcome"


def test_ready_when_a_worker_breathes_and_sweeps(story: Story) -> None:
    eventually(lambda: story.caller(None).get("/readyz").status_code == 200, "a worker that breathes and sweeps")
    body = story.caller(None).get("/readyz").json()
    assert body["status"] == "ready" and set(body["checks"]) == {"database", "writes", "workers", "sweeper"}
    for check in body["checks"].values():
        assert check["ok"] is True and check["age_seconds"] >= 0
