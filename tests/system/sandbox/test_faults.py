"""Faults are precise, persistent, and only where requested."""

from __future__ import annotations

import json

import pytest

from .harness import VENDOR, Sandbox

LOOKUP = {"name": "Acme Pallets Ltd", "country": "GB", "tax_id": "GB-1234"}


def lookup(sandbox: Sandbox) -> int:
    return sandbox.client.get("/api/registry/companies", params=LOOKUP).status_code


def test_an_entry_is_replaced_whole_and_listed(sandbox: Sandbox) -> None:
    sandbox.fault(system="erp", operation="create_vendor", latency_ms=5, error_rate=0.5)

    answer = sandbox.client.post("/faults", json={"system": "erp", "operation": "create_vendor", "latency_ms": 7})

    entry = {
        "system": "erp",
        "operation": "create_vendor",
        "latency_ms": 7,
        "error_rate": 0,
        "drop_after_execute_rate": 0,
        "w9_delay_seconds": None,
        "refuse_rate": 0,
    }
    assert (answer.status_code, answer.json()) == (200, entry)
    assert sandbox.client.get("/faults").json() == [entry]
    assert sandbox.client.post("/faults", json=entry).json() == entry  # listed entries can be posted


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ('{"error_rat": 1}', "error_rat"),
        ('{"error_rate": 1.01}', "error_rate"),
        ('{"error_rate": -0.1}', "error_rate"),
        ('{"error_rate": "1"}', "error_rate"),
        ('{"error_rate": true}', "error_rate"),
        ('{"error_rate": null}', "error_rate"),
        ('{"error_rate": NaN}', "error_rate"),
        ('{"drop_after_execute_rate": Infinity}', "drop_after_execute_rate"),
        ('{"latency_ms": 1e999}', "latency_ms"),
        ('{"latency_ms": 1' + "0" * 400 + "}", "latency_ms"),
        ('{"latency_ms": [1]}', "latency_ms"),
        ('{"w9_delay_seconds": -1}', "w9_delay_seconds"),
        ('{"w9_delay_seconds": 1e6}', "w9_delay_seconds"),
        ('{"system": "erpp"}', "system"),
        ('{"system": 1}', "system"),
        ('{"system": "erp", "operation": "lookup"}', "operation"),
        ('{"operation": "nope"}', "operation"),
    ],
)
def test_a_wrong_entry_is_refused_by_name_and_changes_nothing(shared: Sandbox, given: str, field: str) -> None:
    before = shared.client.get("/faults").json()

    refused = shared.client.post("/faults", content=given)

    assert (refused.status_code, refused.json()["field"]) == (422, field)
    assert shared.client.get("/faults").json() == before


def test_an_injected_error_comes_before_anything_is_done(sandbox: Sandbox) -> None:
    sandbox.fault(system="erp", operation="create_vendor", error_rate=1)

    refused = sandbox.create_vendor("k")

    assert refused.status_code == 503
    assert [row["executed"] for row in sandbox.effects()] == [False]
    sandbox.fault(system="erp", operation="create_vendor")
    assert "idempotent-replayed" not in sandbox.create_vendor("k").headers


def test_the_most_specific_entry_applies_whole(sandbox: Sandbox) -> None:
    sandbox.fault(error_rate=1)
    assert lookup(sandbox) == 503

    sandbox.fault(system="registry", operation="lookup")

    assert lookup(sandbox) == 200
    assert sandbox.create_vendor("k").status_code == 503
    sandbox.fault(operation="create_vendor")
    assert sandbox.create_vendor("k").status_code == 201
    sandbox.fault(system="erp", error_rate=1)
    assert sandbox.create_vendor("k").status_code == 503
    sandbox.fault(system="erp", operation="create_vendor")
    assert sandbox.create_vendor("k").status_code == 201


def test_faults_never_touch_the_oracle_the_faults_or_the_pages(sandbox: Sandbox) -> None:
    sandbox.fault(error_rate=1, drop_after_execute_rate=1, latency_ms=60_000)

    for path in ("/effects", "/faults", "/healthz", "/", "/erp", "/mail", "/faults.html"):
        assert sandbox.client.get(path).status_code == 200
    assert sandbox.effects() == []


def test_drop_after_execute_does_it_and_answers_nothing(sandbox: Sandbox) -> None:
    sandbox.fault(system="erp", operation="create_vendor", drop_after_execute_rate=1)
    body = json.dumps(VENDOR).encode()
    head = f"POST /api/erp/vendors HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: {len(body)}\r\n\r\n"

    assert sandbox.raw(head.encode() + body) == b""

    assert len(sandbox.executed("create_vendor")) == 1
    # The answer of an effect is lost once: a repeat executes nothing, so it isn't cut.
    again = sandbox.client.post("/api/erp/vendors", content=body, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
    assert len(sandbox.executed("create_vendor")) == 1
