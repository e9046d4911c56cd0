"""Whatever is sent: a clear 4xx, nothing done, and the next request is served."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from .harness import VENDOR, Sandbox

pytestmark = pytest.mark.processes


def with_vendor(**changed: Any) -> bytes:
    return json.dumps(VENDOR | changed).encode()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"not json", 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b"\xff\xfe", 400),
        (b'{"a": 1, "a": 2}', 400),
        (b"[" * 10_000 + b"]" * 10_000, 400),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400),
        (b'{"a":' * 40 + b"1" + b"}" * 40, 400),
        (b'{"a": 1' + b"0" * 5000 + b"}", 400),
        (b"x" * (10 << 20), 413),
        (with_vendor(legal_name="a\x00b"), 422),
        (with_vendor(legal_name="\ud800"), 422),
        (with_vendor(extra={"deep": ["\udfff"]}), 422),
        (with_vendor(extra=float("nan")), 422),
        (with_vendor(legal_name=None), 422),
        (with_vendor(legal_name=7), 422),
        (with_vendor(legal_name="  "), 422),
        (with_vendor(legal_name="x" * 301), 422),
        (with_vendor(country="D"), 422),
        (with_vendor(country="ß"), 422),
        (with_vendor(tax_id="12_34"), 422),
        (with_vendor(tax_id="٣٣٣٣"), 422),
        (with_vendor(contact_email="nobody"), 422),
        (with_vendor(category=["a"]), 422),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_bad_body_is_refused(shared: Sandbox, body: bytes, status: int) -> None:
    answer = shared.client.post("/api/erp/vendors", content=body, headers={"Idempotency-Key": "bad"})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    if status == 422:
        assert answer.json()["field"]
    assert shared.executed() == []


@pytest.mark.parametrize(
    "amount",
    [
        0,
        -1,
        True,
        1.5,
        None,
        "",
        "1e3",
        "1,000",
        "0.00",
        "1.234",
        "NaN",
        "+5",
        2**63,
        "9" * 13,
        "٣",
    ],
)
def test_money_is_whole_cents_and_above_zero(shared: Sandbox, amount: Any) -> None:
    order = {"vendor_id": "VND-000001", "description": "x", "amount_usd": amount}
    answer = shared.post("/api/erp/purchase-orders", order, "k")
    assert (answer.status_code, answer.json()["field"]) == (422, "amount_usd")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a/",
        "http://",
        "javascript:alert(1)",
        "http://[::1",
        "http://a b/",
        "http://a:0/",
        "/x",
        5,
    ],
)
def test_a_callback_url_must_be_http(shared: Sandbox, url: Any) -> None:
    wanted = {name: VENDOR[name] for name in ("legal_name", "tax_id", "contact_email")}
    answer = shared.post("/api/portal/w9-requests", wanted | {"callback_url": url}, "k")
    assert (answer.status_code, answer.json()["field"]) == (422, "callback_url")


@pytest.mark.parametrize(
    "query",
    [
        "name=%00&country=DE&tax_id=1234",
        "name=a&country=DE",
        "name=a&name=&country=DE&tax_id=1234",
        "%ff=%ff",
        "",
    ],
)
def test_a_bad_query_is_refused(shared: Sandbox, query: str) -> None:
    answer = shared.client.get(f"/api/registry/companies?{query}")
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/mail/999", 404),
        ("GET", f"/mail/{10**40}", 404),
        ("DELETE", "/api/erp/vendors", 405),
        ("POST", "/effects", 405),
        ("POST", "/api/registry/companies", 405),
    ],
)
def test_a_wrong_address_is_a_problem_too(shared: Sandbox, method: str, path: str, status: int) -> None:
    answer = shared.client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["status"] == status


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /mail/%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /effects.html?run_id=%00%ff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /api/erp/vendors HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \xff\r\nContent-Length: "
        b"2\r\nConnection: close\r\n\r\n{}",
        b"POST /api/erp/vendors HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n{}",
    ],
)
def test_bytes_that_are_hardly_http_never_make_a_5xx(shared: Sandbox, raw: bytes) -> None:
    status_line = shared.raw(raw).split(b"\r\n")[0]
    assert status_line.split(b" ")[1][:1] in (b"2", b"4")


def test_a_client_that_leaves_in_the_middle_is_no_row(sandbox: Sandbox) -> None:
    with socket.create_connection(("127.0.0.1", sandbox.http_port)) as raw:
        raw.sendall(b"POST /api/erp/vendors HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{")

    assert httpx.get(f"{sandbox.url}/healthz").status_code == 200
    assert sandbox.effects() == []
    assert sandbox.end() == (0, "")
