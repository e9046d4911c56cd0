"""The oracle counts every request and marks exactly one per effect as executed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import smtplib
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from durableagents.demo.sandbox.store import SCHEMA, Store

from .harness import VENDOR, Sandbox

_NEWER = """
    sender          INTEGER,                    -- the process that sent it, and when, where it says so
    sent_at         TEXT"""

RUN = "0193e1f0-0000-7000-8000-000000000001"
FIVE = [
    ("portal", "request_w9"),
    ("erp", "create_vendor"),
    ("erp", "file_purchase_order"),
    ("credentials", "provision"),
    ("email", "send_welcome"),
]


def complete_run(sandbox: Sandbox) -> None:
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
        "sender": None,
        "sent_at": None,
        "executed": True,
    }


def test_a_row_says_who_sent_it_and_when_where_they_say_so(sandbox: Sandbox) -> None:
    before = datetime.now(UTC)
    for header in (
        f"42 {time.monotonic() - 5:.6f}",
        "42 nonsense",
        f"42 {time.monotonic() + 600:.6f}",
        "42",
        "-1 5.0",
        "9" * 40 + " 1.0",
    ):
        sandbox.client.get(
            "/api/sanctions/screen", params={"name": "Acme", "country": "DE"}, headers={"X-Sender": header}
        )

    first, *others = sandbox.effects()

    assert first["sender"] == 42 and all(row["sender"] is row["sent_at"] is None for row in others)
    late = datetime.fromisoformat(first["sent_at"].replace("Z", "+00:00")) - before
    assert timedelta(seconds=-5.1) < late < timedelta(seconds=0)


def test_a_file_of_an_older_sandbox_is_opened_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite3"
    old = sqlite3.connect(path)
    old.executescript(
        SCHEMA.read_text().replace("CHECK (executed IN (0, 1)),", "CHECK (executed IN (0, 1))").replace(_NEWER, "")
    )
    old.execute("INSERT INTO requests (system, operation, received_at) VALUES ('erp', 'create_vendor', 'then')")
    old.commit()
    old.close()
    loop = asyncio.new_event_loop()
    for _ in range(2):
        store = Store(path)
        store.open(loop)
        store.close()
    loop.close()
    kept = sqlite3.connect(path).execute("SELECT operation, sender, sent_at FROM requests").fetchall()
    assert kept == [("create_vendor", None, None)]


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
        sandbox.client.post("/api/erp/vendors", json=VENDOR, headers={"Idempotency-Key": "k"}, timeout=0.3)
    sandbox.wait_for_rows("create_vendor", 1)  # on a busy machine it comes after its client has left
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
