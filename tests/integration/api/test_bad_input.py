"""Whatever is sent, the answer is precise, nothing is half done, and it is never a 5xx."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.web import strict_json
from runs.models import Run
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem

pytestmark = pytest.mark.django_db

ANY_TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\x00\u202e\ufeff\U0001f600"), max_size=30)
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["agent", "input", "tags", "justification", "verdict", "receipt", "plan_hash", "item", "amount"]
)
PLAUSIBLE = st.sampled_from(
    [
        "order",
        "order@1.0.0",
        "order@9.9.9",
        "order@",
        "@",
        "approve",
        "happened",
        "did_not",
        {"item": "chair", "amount": 1},
    ]
)
BODIES = st.dictionaries(FIELDS, PLAUSIBLE | ANY_JSON, max_size=5) | ANY_JSON
STEERING = ["pause", "resume", "cancel", "retry", "reconcile"]
fuzz = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def is_civil(answer: Any) -> bool:
    """An answer that is a success or says what is wrong."""
    return answer.status_code < 300 or (answer.status_code < 500 and is_problem(answer, answer.status_code))


@fuzz
@given(body=BODIES)
def test_any_body_to_start(integrator: Api, body: Any) -> None:
    before = Run.objects.count()
    answer = integrator.send("runs", json.dumps(body).encode())
    assert is_civil(answer)
    assert Run.objects.count() == before + (answer.status_code == 201)


@fuzz
@given(body=BODIES, act=st.sampled_from(STEERING))
def test_any_body_to_steer(operator: Api, start: Any, body: Any, act: str) -> None:
    if not Run.objects.exists():
        start()
    run = Run.objects.first()
    assert run is not None
    assert is_civil(operator.send(f"runs/{run.id}/{act}", json.dumps(body).encode()))


@fuzz
@given(
    raw=st.binary(max_size=60),
    act=st.sampled_from(["runs", "callbacks/x", f"runs/{UUID(int=1)}/pause"]),
)
def test_any_bytes(operator: Api, raw: bytes, act: str) -> None:
    assert is_civil(operator.send(act, raw))


@fuzz
@given(body=ANY_JSON, token=ANY_TEXT.filter(bool))
def test_any_callback(operator: Api, body: Any, token: str) -> None:
    from urllib.parse import quote

    assert operator.send(f"callbacks/{quote(token, safe='')}", json.dumps(body).encode()).status_code in (404, 422)


@fuzz
@given(
    query=st.dictionaries(
        st.sampled_from(["state", "agent", "limit", "cursor", "after", "queue", "run_id"]) | ANY_TEXT,
        ANY_TEXT,
        max_size=3,
    )
)
def test_any_query(auditor: Api, query: dict[str, str]) -> None:
    for address in ("runs", "approvals", "agents", f"runs/{UUID(int=1)}/events"):
        assert is_civil(auditor.get(address, **query))


@each_case(
    ("raw", "status"),
    [
        (b"", 422),
        (b"{}", 422),
        (b"[]", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b"{", 400),
        (b"{'agent': 1}", 400),
        (b'{"agent": "order", "agent": "order", "input": {}}', 400),
        (b'{"agent": "order", "input": {"item": "x", "amount": NaN}}', 400),
        (b'{"agent": "order", "input": {"item": "x", "amount": 1e999}}', 400),
        (b'{"agent": "order", "input": {"item": "\\ud800", "amount": 1}}', 400),
        (b'{"agent": "order", "input": {"item": "\\u0000", "amount": 1}}', 422),
        (b'{"agent": "order\\u0000", "input": {}}', 422),
        (b'{"agent": "order", "input": {"item": "x", "amount": 9223372036854775808}}', 422),
        (b'{"agent": "order", "input": {"item": "x", "amount": "1"}, "tags": "no list"}', 422),
        (b'{"agent": "order", "input": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400),
        (b'{"agent": "order", "input": "\xff"}', 400),
        (b"\xef\xbb\xbf{}", 400),
    ],
)
def test_hostile_bodies(integrator: Api, raw: bytes, status: int) -> None:
    assert is_problem(integrator.send("runs", raw), status) and Run.objects.count() == 0


HEAVY = b'{"a":[' + b"[]," * 340_000 + b"0]}"


def test_nothing_of_a_body_is_read_for_a_token_that_nobody_gave_out(
    operator: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    plain = strict_json.loads
    monkeypatch.setattr(strict_json, "loads", lambda body: read.append(len(body)) or plain(body))
    for body in (HEAVY, b"{", b"", b"\xff" * 100):
        assert is_problem(operator.send("callbacks/nope", body), 404, "not-found")
    assert read == []
    operator.send("runs", b"{}")
    assert read == [2], "the same door reads what an authenticated caller sends, once"


def test_forged_tokens_are_counted_and_said_once_a_minute(operator: Api, caplog: pytest.LogCaptureFixture) -> None:
    from runs.services import forgeries

    known = forgeries.Forgeries()
    with caplog.at_level("WARNING", "runs.services.forgeries"):
        for _ in range(1000):
            known.note("192.0.2.7")
    assert known.count == 1000
    assert [record.getMessage() for record in caplog.records] == [
        "callbacks with unknown tokens were refused: 1 since this was last said, the latest from 192.0.2.7"
    ]
    before = forgeries.forgeries.count
    operator.send("callbacks/a-secret-with-a-slip", b"{}")
    assert forgeries.forgeries.count == before + 1 and "a-secret" not in caplog.text


@each_case("address", ["runs", f"runs/{UUID(int=1)}/pause"])
def test_a_body_of_countless_values_is_refused_by_name(operator: Api, start: Any, address: str) -> None:
    if "pause" in address:
        address = f"runs/{start()['id']}/pause"
    answer = operator.send(address, HEAVY)
    assert is_problem(answer, 400) and "50000 values" in answer.json()["detail"]


@each_case("address", ["runs", f"runs/{UUID(int=1)}/pause"])
def test_ten_megabytes_are_413(operator: Api, start: Any, address: str) -> None:
    if "pause" in address:
        address = f"runs/{start()['id']}/pause"
    giant = b'{"justification": "' + b"x" * 10_000_000 + b'"}'
    assert is_problem(operator.send(address, giant), 413, "too-large")


@each_case(
    ("changed", "field"),
    [
        ({"agent": "nobody"}, "agent"),
        ({"agent": "order@9.9.9"}, "agent"),
        ({"agent": "order@"}, "agent"),
        ({"agent": 5}, "agent"),
        ({"agent": None}, "agent"),
        ({"input": {"item": "chair"}}, "amount"),
        ({"input": {"item": "chair", "amount": 0}}, "amount"),
        ({"input": {"item": "chair", "amount": 1, "colour": "red"}}, "colour"),
        ({"input": None}, ""),
        ({"input": [1]}, ""),
        ({"tags": ["x" * 201]}, "tags"),
        ({"tags": [5]}, "tags.0"),
        ({"tags": {"a": 5}}, "tags.a"),
        ({"tags": 5}, "tags"),
        ({"tags": {"": "x"}}, 'tags.""'),
        ({"tags": {"x" * 201: "x"}}, "tags." + "x" * 195),
        ({"tags": {"[key]": 5}}, "tags.[key]"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_each_wrong_field_is_named_with_a_fix(integrator: Api, changed: dict[str, Any], field: str) -> None:
    answer = integrator.post("runs", START | changed)
    assert is_problem(answer, 422) and Run.objects.count() == 0
    errors = answer.json()["errors"]
    assert any(field in error["field"] and error["problem"] and error["fix"] for error in errors), errors
    assert not any(word in str(errors) for word in ("<array>", "<object>", "after validation")), errors


def test_nobody_sets_what_is_not_theirs(integrator: Api) -> None:
    for name in ("id", "state", "created_by", "version", "owner", "epoch"):
        assert is_problem(integrator.post("runs", START | {name: "x"}), 422)
