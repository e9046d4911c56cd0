"""The pages reveal no secret and accept no button from another origin (tests/unit/sandbox: no text is markup)."""

from __future__ import annotations

from .harness import Sandbox


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
