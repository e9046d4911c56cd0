"""Bad input gets a clear 4xx, changes nothing, and the next request is served."""

from __future__ import annotations

import json
from typing import Any

from tests.cases import each_case

from .harness import VENDOR, Sandbox


def with_vendor(**changed: Any) -> bytes:
    return json.dumps(VENDOR | changed).encode()


@each_case(
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
)
def test_a_bad_body_is_refused(shared: Sandbox, body: bytes, status: int) -> None:
    answer = shared.client.post("/api/erp/vendors", content=body, headers={"Idempotency-Key": "bad"})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    if status == 422:
        assert answer.json()["field"]
    assert shared.executed() == []


@each_case(
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
