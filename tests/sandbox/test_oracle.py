"""The oracle counts every request and calls exactly one per effect executed."""

from __future__ import annotations

import hashlib
import json
import smtplib

import pytest

from .harness import VENDOR, Sandbox

pytestmark = pytest.mark.processes

RUN = "0193e1f0-0000-7000-8000-000000000001"
FIVE = [
    ("portal", "request_w9"),
    ("erp", "create_vendor"),
    ("erp", "file_purchase_order"),
    ("credentials", "provision"),
    ("email", "send_welcome"),
]


def complete_run(sandbox: Sandbox) -> None:
    """What one onboarding sends, each keyed request twice."""
    for _ in range(2):
        portal = {name: VENDOR[name] for name in ("legal_name", "tax_id", "contact_email")}
        portal["callback_url"] = "http://127.0.0.1:1/"
        sandbox.post("/api/portal/w9-requests", portal, "k1", RUN)
        vendor = sandbox.post("/api/erp/vendors", VENDOR, "k2", RUN).json()["vendor_id"]
        order = {"vendor_id": vendor, "description": "Dock sensors", "amount_usd": 84000}
        sandbox.post("/api/erp/purchase-orders", order, "k3", RUN)
        sandbox.post("/api/credentials", {"vendor_id": vendor, "scope": "orders"}, "k4", RUN)
    with smtplib.SMTP("127.0.0.1", sandbox.smtp_port) as smtp:
        smtp.sendmail("a@b.example", ["c@d.example"], f"X-Run-Id: {RUN}\r\n\r\nWelcome\r\n")


def test_a_complete_run_has_five_executed_effects(sandbox: Sandbox) -> None:
    complete_run(sandbox)

    assert [(row["system"], row["operation"]) for row in sandbox.executed()] == FIVE
    assert {row["run_id"] for row in sandbox.effects()} == {RUN}
    assert len(sandbox.effects()) == 9


def test_a_row_says_what_was_received(sandbox: Sandbox) -> None:
    sandbox.post("/api/erp/vendors", VENDOR, "k", RUN)

    (row,) = sandbox.effects()

    sent = json.dumps(VENDOR, separators=(",", ":"), ensure_ascii=False).encode()
    assert row.pop("received_at").endswith("Z")
    assert row == {
        "id": 1,
        "system": "erp",
        "operation": "create_vendor",
        "idempotency_key": "k",
        "body_sha256": hashlib.sha256(sent).hexdigest(),
        "run_id": RUN,
        "executed": True,
    }


def test_reads_and_refusals_are_rows_that_executed_nothing(sandbox: Sandbox) -> None:
    sandbox.client.get("/api/sanctions/screen", params={"name": "Acme"}, headers={"X-Run-Id": RUN})
    sandbox.client.get("/api/registry/companies", params={"name": "Acme"})  # fields are missing
    sandbox.post("/api/erp/vendors", VENDOR)  # the key is missing
    sandbox.post("/api/erp/vendors", {}, "k")
    sandbox.client.post("/api/credentials", content=b"x" * 2_000_000)

    rows = sandbox.effects()
    assert [row["operation"] for row in rows] == [
        "screen",
        "lookup",
        "create_vendor",
        "create_vendor",
        "provision",
    ]
    assert not any(row["executed"] for row in rows)
    assert rows[0]["run_id"] == RUN
    assert rows[-1]["body_sha256"] is None


def test_a_receipt_is_on_disk_before_the_effect(sandbox: Sandbox) -> None:
    sandbox.fault(system="erp", latency_ms=600_000)
    with pytest.raises(Exception, match="timed out"):
        sandbox.client.post(
            "/api/erp/vendors", json=VENDOR, headers={"Idempotency-Key": "k"}, timeout=0.3
        )
    sandbox.kill()
    sandbox.start()

    assert [row["executed"] for row in sandbox.effects()] == [False]
    sandbox.client.delete("/faults")
    assert sandbox.create_vendor("k").status_code == 201
    assert [row["executed"] for row in sandbox.effects()] == [False, True]


def test_one_run_can_be_picked_out(sandbox: Sandbox) -> None:
    sandbox.post("/api/erp/vendors", VENDOR, "k1", "run-1")
    sandbox.post("/api/erp/vendors", VENDOR, "k2", "run-2")

    found = sandbox.client.get("/effects", params={"run_id": "run-2"}).json()

    assert [row["idempotency_key"] for row in found] == ["k2"]
    assert sandbox.client.get("/effects", params={"run_id": "a b"}).status_code == 422
