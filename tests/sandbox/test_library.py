"""The library embeds a text and keeps a report once for each key, and takes none that isn't what its digest says."""

from __future__ import annotations

import hashlib
import smtplib
from typing import Any

import pytest

from tests.sandbox.harness import Sandbox

pytestmark = pytest.mark.processes


def report(text: str = "Once.") -> dict[str, Any]:
    return {"title": "T", "text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def test_a_report_is_kept_once_and_found_by_its_key(sandbox: Sandbox) -> None:
    first, again = (sandbox.post("/api/library/reports", report(), "k") for _ in range(2))
    assert first.status_code == again.status_code == 201 and first.json() == again.json()
    assert len(sandbox.executed("publish")) == 1
    found = sandbox.client.get("/api/library/reports", params={"idempotency_key": "k"}).json()
    assert found["results"] == [first.json()]
    assert sandbox.post("/api/library/reports", report("Twice."), "k").status_code == 422


@pytest.mark.parametrize(
    "wrong", [{"sha256": "0" * 64}, {"sha256": "x"}, {"text": ""}, {"text": "x" * 200_001}, {"text": "\x00"}]
)
def test_what_is_not_what_it_says_is_refused(sandbox: Sandbox, wrong: dict[str, Any]) -> None:
    answer = sandbox.post("/api/library/reports", report() | wrong, "k")
    assert answer.status_code == 422 and not sandbox.executed("publish")


def test_a_text_has_one_vector_and_each_key_is_paid_for_once(sandbox: Sandbox) -> None:
    text = {"document_id": "d", "sha256": "0" * 64, "text": "to be or not to be"}
    first, again, other = (sandbox.post("/api/library/embeddings", text, key).json() for key in ("a", "a", "b"))
    assert first == again and first["vector"] == other["vector"] and sum(first["vector"]) == 6
    assert len(sandbox.executed("embed")) == 2


def test_the_mailbox_finds_a_message_by_its_run_and_its_id(sandbox: Sandbox) -> None:
    with smtplib.SMTP("127.0.0.1", sandbox.smtp_port) as smtp:
        for run in ("run-1", "run-2"):
            mail = f"Subject: Hello\r\nMessage-ID: <a@b.example>\r\nX-Run-Id: {run}\r\n\r\nx"
            smtp.sendmail("a@x.example", ["b@x.example"], mail)

    def found(run_id: str, message_id: str) -> int:
        query = {"run_id": run_id, "message_id": message_id}
        return len(sandbox.client.get("/api/mail/messages", params=query).raise_for_status().json()["results"])

    assert found("run-1", "<a@b.example>") == 1
    assert found("run-1", "<other@b.example>") == found("run-3", "<a@b.example>") == 0
    assert sandbox.client.get("/api/mail/messages", params={"run_id": "run-1"}).status_code == 422
