"""Keyed systems honour Idempotency-Key despite crashes."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import httpx

from tests.tiers import many

from .harness import VENDOR, Sandbox


def test_same_key_and_body_is_one_effect_and_one_answer(sandbox: Sandbox) -> None:
    first = sandbox.create_vendor("k")
    again = sandbox.create_vendor("k")

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert [row["executed"] for row in sandbox.effects("create_vendor")] == [True, False]


def test_same_key_with_another_body_is_refused(sandbox: Sandbox) -> None:
    sandbox.create_vendor("k")

    refused = sandbox.create_vendor("k", category="other")

    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["field"] == "Idempotency-Key"
    assert len(sandbox.executed()) == 1


def test_bytes_count_not_meaning(sandbox: Sandbox) -> None:
    sandbox.create_vendor("k")
    reordered = dict(reversed(VENDOR.items()))

    assert sandbox.post("/api/erp/vendors", reordered, "k").status_code == 422


def test_a_key_is_required_and_must_be_printable(sandbox: Sandbox) -> None:
    missing = sandbox.post("/api/erp/vendors", VENDOR)
    blank = sandbox.post("/api/erp/vendors", VENDOR, "two words")
    long = sandbox.post("/api/erp/vendors", VENDOR, "k" * 256)

    assert [answer.status_code for answer in (missing, blank, long)] == [400, 400, 400]
    assert sandbox.executed() == []


def test_keys_are_scoped_per_operation(sandbox: Sandbox) -> None:
    vendor = sandbox.create_vendor("k").json()["vendor_id"]

    order = {"vendor_id": vendor, "description": "Dock sensors", "amount_usd": "84000.00"}
    filed = sandbox.post("/api/erp/purchase-orders", order, "k")

    assert filed.status_code == 201
    assert filed.json() == {"po_number": "PO-000001", "status": "filed"} | order


def test_a_refusal_leaves_the_key_free(sandbox: Sandbox) -> None:
    assert sandbox.create_vendor("k", country="Germany").status_code == 422
    assert sandbox.create_vendor("k").status_code == 201


def test_an_unknown_vendor_is_refused_and_nothing_is_kept(sandbox: Sandbox) -> None:
    order = {"vendor_id": "VND-000009", "description": "x", "amount_usd": "1"}

    refused = sandbox.post("/api/erp/purchase-orders", order, "k")

    assert refused.status_code == 422
    assert refused.json()["field"] == "vendor_id"
    assert sandbox.executed() == []
    found = sandbox.client.get("/api/erp/purchase-orders", params={"idempotency_key": "k"})
    assert found.json() == {"results": []}


def test_a_repeat_gets_the_same_secret_and_another_key_another(sandbox: Sandbox) -> None:
    wanted = {"vendor_id": sandbox.create_vendor("v").json()["vendor_id"], "scope": "orders:read"}

    first = sandbox.post("/api/credentials", wanted, "k").json()
    sandbox.kill()
    sandbox.start()
    again = sandbox.post("/api/credentials", wanted, "k").json()
    other = sandbox.post("/api/credentials", wanted, "k2").json()

    assert again == first
    assert other["secret"] != first["secret"]


def test_while_the_first_is_in_progress_the_second_is_told_so(sandbox: Sandbox) -> None:
    sandbox.fault(system="erp", operation="create_vendor", latency_ms=4000)  # a busy machine is slow to ask again
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sandbox.create_vendor, "k")
        sandbox.wait_for_rows("create_vendor", 1)

        second = sandbox.create_vendor("k")
        found = sandbox.client.get("/api/erp/vendors", params={"idempotency_key": "k"})

        assert (second.status_code, found.status_code) == (409, 409)
        assert first.result().status_code == 201
    assert sandbox.create_vendor("k").content == first.result().content
    assert [row["executed"] for row in sandbox.effects("create_vendor")] == [True, False, False]


def test_a_request_whose_client_gave_up_still_happens_once(sandbox: Sandbox) -> None:
    sandbox.fault(system="erp", operation="create_vendor", latency_ms=1500)
    client = HTTPConnection("127.0.0.1", sandbox.http_port)
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    client.request("POST", "/api/erp/vendors", httpx.Request("POST", sandbox.url, json=VENDOR).content, headers)
    sandbox.wait_for_rows("create_vendor", 1)
    client.close()
    sandbox.fault(system="erp", operation="create_vendor")

    while (again := sandbox.create_vendor("k")).status_code == 409:
        pass

    assert again.status_code == 201
    assert len(sandbox.executed("create_vendor")) == 1


def test_a_reconciler_reads_what_a_key_did(sandbox: Sandbox) -> None:
    created = sandbox.create_vendor("k").json()

    found = sandbox.client.get("/api/erp/vendors", params={"idempotency_key": "k"})
    nothing = sandbox.client.get("/api/erp/vendors", params={"idempotency_key": "other"})

    assert found.json() == {"results": [created]}
    assert nothing.json() == {"results": []}
    assert [row["executed"] for row in sandbox.effects("find_vendor")] == [False, False]


def test_dozens_at_once_with_one_key_are_one_effect(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: sandbox.create_vendor("k"), range(24)))

    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert len(sandbox.executed()) == 1
    assert len(sandbox.effects()) == 24


def test_kill_9_loses_no_acknowledged_effect_and_doubles_none(sandbox: Sandbox) -> None:
    """Eight clients, each repeating a key until it is answered, through several kills."""
    answers: dict[str, bytes] = {}
    over = threading.Event()

    def client(number: int) -> None:
        with httpx.Client(base_url=sandbox.url, trust_env=False, timeout=5) as http:
            turn = 0
            while not over.is_set():
                key = f"{number}-{turn}"
                try:
                    answer = http.post("/api/erp/vendors", json=VENDOR, headers={"Idempotency-Key": key})
                except httpx.TransportError:
                    over.wait(0.01)
                    continue
                if answer.status_code == 201:
                    answers[key] = answer.content
                    turn += 1

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(client, number) for number in range(8)]
        dice = random.Random(7)
        for _ in range(many(5, 3)):
            seen = len(answers) + dice.randrange(20, 120)
            while len(answers) < seen:
                over.wait(0.005)
            sandbox.kill()
            sandbox.start()
        over.set()
        for each in running:
            each.result()

    executed = [row["idempotency_key"] for row in sandbox.executed()]
    assert len(executed) == len(set(executed))
    assert set(executed) >= set(answers)
    for key, content in answers.items():
        assert sandbox.create_vendor(key).content == content
