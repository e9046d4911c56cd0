"""The pages: readable by people, useless to attackers."""

from __future__ import annotations

import hashlib
import re

import pytest

from .harness import VENDOR, Sandbox

pytestmark = pytest.mark.processes

PAGES = ("/", "/erp", "/portal", "/credentials", "/mail", "/library", "/effects.html", "/faults.html")
HOSTILE = "\"'><script>alert(1)</script>\u202egnp.exe\u200b" + "\u0301" * 50


def test_hostile_text_is_inert_everywhere(sandbox: Sandbox) -> None:
    vendor = sandbox.post("/api/erp/vendors", VENDOR | {"legal_name": HOSTILE}, "<i>k", "<b>run").json()
    order = {"vendor_id": vendor["vendor_id"], "description": HOSTILE, "amount_usd": "84000"}
    sandbox.post("/api/erp/purchase-orders", order, "k")
    sandbox.post("/api/credentials", {"vendor_id": vendor["vendor_id"], "scope": HOSTILE}, "k")
    report = {"title": HOSTILE, "text": HOSTILE, "sha256": hashlib.sha256(HOSTILE.encode()).hexdigest()}
    sandbox.post("/api/library/reports", report, "k").raise_for_status()
    portal = {name: VENDOR[name] for name in ("tax_id", "contact_email")}
    portal |= {"legal_name": HOSTILE, "callback_url": "http://127.0.0.1:1/?<script>"}
    sandbox.post("/api/portal/w9-requests", portal, "k")

    for path in (*PAGES, "/library/1"):
        page = sandbox.client.get(path).text
        assert not re.search(r"<script|<i>|<b>run", page)
        assert "\u202e" not in page
        assert "\u0301" * 4 not in page
    assert "U+202E" in sandbox.client.get("/erp").text
    assert "$84,000.00" in sandbox.client.get("/erp").text


def test_a_secret_is_masked(sandbox: Sandbox) -> None:
    vendor = sandbox.create_vendor("v").json()["vendor_id"]
    wanted = {"vendor_id": vendor, "scope": "orders"}
    secret = sandbox.post("/api/credentials", wanted, "k").json()["secret"]

    page = sandbox.client.get("/credentials").text

    assert secret not in page
    assert secret[-8:] not in page
    assert "CRD-000001" in page


def test_a_page_of_another_origin_presses_no_button(sandbox: Sandbox) -> None:
    for origin in (
        "http://evil.example",
        "null",
        "http://[",
        f"http://127.0.0.1:{sandbox.smtp_port}",
    ):
        for path in ("/faults", "/faults.html", "/portal/w9-requests/1/send"):
            refused = sandbox.client.post(path, headers={"Origin": origin})
            assert refused.status_code == 403
    own = sandbox.client.post("/faults.html", data={"error_rate": "0"}, headers={"Origin": sandbox.url})
    assert own.status_code == 303
