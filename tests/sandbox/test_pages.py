"""The pages: readable by people, useless to attackers."""

from __future__ import annotations

import hashlib
import re

import pytest

from durableagents.demo.sandbox.web.markup import Markup, show

from .harness import VENDOR, Sandbox

pytestmark = pytest.mark.processes

PAGES = ("/", "/erp", "/portal", "/credentials", "/mail", "/library", "/effects.html", "/faults.html")
HOSTILE = "\"'><script>alert(1)</script>\u202egnp.exe\u200b" + "\u0301" * 50


def test_empty_pages_say_so(sandbox: Sandbox) -> None:
    for path in PAGES:
        answer = sandbox.client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "No vendor has been created yet." in sandbox.client.get("/erp").text


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


def test_the_oracle_as_a_table(sandbox: Sandbox) -> None:
    for _ in range(2):
        sandbox.post("/api/erp/vendors", VENDOR, "key-1", "run-1")
    sandbox.create_vendor("key-2")

    page = sandbox.client.get("/effects.html?run_id=run-1").text

    assert page.count(">executed<") == 1
    assert page.count(">no change<") == 1
    assert "key-2" not in page


def test_faults_can_be_set_by_form(sandbox: Sandbox) -> None:
    form = {"system": "erp", "operation": "*", "error_rate": "0.5", "latency_ms": ""}

    saved = sandbox.client.post("/faults.html", data=form)

    assert (saved.status_code, saved.headers["location"]) == (303, "/faults.html")
    (entry,) = sandbox.client.get("/faults").json()
    assert (entry["system"], entry["error_rate"], entry["latency_ms"]) == ("erp", 0.5, 0)
    assert "0.5" in sandbox.client.get("/faults.html").text


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"error_rate": "2"}, "error_rate: must be between 0 and 1"),
        ({"error_rate": "much"}, "error_rate: must be a number"),
        ({"error_rate": "nan"}, "error_rate: must be between 0 and 1"),
        ({"system": "<script>"}, "system: no such system"),
        ({"color": "red"}, "color: no such field"),
    ],
)
def test_a_wrong_form_says_why_and_changes_nothing(shared: Sandbox, form: dict[str, str], said: str) -> None:
    answer = shared.client.post("/faults.html", data=form)

    assert answer.status_code == 422
    assert said in answer.text
    assert "<script" not in answer.text
    assert shared.client.get("/faults").json() == []


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


def test_only_our_own_markup_passes_unescaped() -> None:
    assert show("<b>&\"'") == "<bdi>&lt;b&gt;&amp;&quot;&#x27;</bdi>"
    assert show(Markup("<b>")) == "<b>"
    assert show(0) == "<bdi>0</bdi>"
    assert "–" in show(None)
