"""The library embeds a text and keeps a report once for each key, and takes none that isn't what its digest says."""

from __future__ import annotations

import hashlib
import smtplib
from typing import Any

import pytest

from tests.system.sandbox.harness import Sandbox

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
