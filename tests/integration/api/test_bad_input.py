"""Bad input gets a precise error, changes nothing and is never a 5xx."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.web import strict_json
from ledger.web.roles import ROLES
from runs.models import Run
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem, person
from tests.tiers import many, sample

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
    max_examples=many(60, 25), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def is_civil(answer: Any) -> bool:
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
@given(raw=st.binary(max_size=60), act=st.sampled_from(["runs", "callbacks/x", f"runs/{UUID(int=1)}/pause"]))
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


def test_no_body_is_read_for_an_unknown_token(operator: Api, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_body_beyond_the_limit_is_413(operator: Api, start: Any, address: str) -> None:
    size = 70_000_000
    if "pause" in address:
        address, size = f"runs/{start()['id']}/pause", 10_000_000
    giant = b'{"justification": "' + b"x" * size + b'"}'
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


FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
LIMIT = django_settings.DATA_UPLOAD_MAX_NUMBER_FIELDS


def parts(count: int, more: str = "") -> bytes:
    head = "".join(f'--x\r\nContent-Disposition: form-data; name="f{n}"{more}\r\n\r\n1\r\n' for n in range(count))
    return f"{head}--x--\r\n".encode()


def part(value: bytes, head: bytes = b'name="justification"', more: bytes = b"") -> bytes:
    return b"--x\r\nContent-Disposition: form-data; " + head + more + b"\r\n\r\n" + value + b"\r\n"


NO_TEXT, A_FILE = b"\xed\xa0\x80abc", part(b"\xff\xfe", b'name="f"; filename="a"')
BASE64 = b"\r\nContent-Transfer-Encoding: base64"
# The request, and the answer to it.
UNREADABLE: dict[str, tuple[bytes, str, int, str]] = {
    "too many fields": (b"&".join(b"f%d=1" % n for n in range(2000)), FORM, 400, f"at most {LIMIT}"),
    "too many parts": (parts(2000), PARTS, 400, f"at most {LIMIT}"),
    "too many files": (parts(200, '; filename="a"'), PARTS, 400, "contains files"),
    "too large": (b"justification=" + b"x" * 3_000_000, FORM, 413, "larger than the limit"),
    "no boundary": (parts(1), "multipart/form-data", 400, "could not be decoded"),
    "a boundary without end": (parts(1), "multipart/form-data; boundary=" + "x" * 300, 400, "could not be decoded"),
    "a part's endless head": (parts(1, "; a=b" * 5000), PARTS, 400, "could not be decoded"),
    "parts in no encoding of text": (parts(1), f"{PARTS}; charset=rot13", 400, "must be encoded in UTF-8"),
    "parts in bytes for text": (parts(1), f"{PARTS}; charset=hex", 400, "must be encoded in UTF-8"),
    "parts in another encoding": (parts(1), f"{PARTS}; charset=utf-16", 400, "must be encoded in UTF-8"),
    "half a pair": (b"justification=%ed%a0%80abc", FORM, 400, "are not UTF-8"),
    "Latin-1": (b"justification=caf\xe9", FORM, 400, "are not UTF-8"),
    "half a sign escaped": (b"justification=ok%c3\xa9", FORM, 400, "are not UTF-8"),
    "the other half escaped": (b"justification=caf\xc3%a9", FORM, 400, "are not UTF-8"),
    "a name that is no text": (b"%ff=1", FORM, 400, "are not UTF-8"),
    "a part that is no text": (part(NO_TEXT) + b"--x--\r\n", PARTS, 400, "are not UTF-8"),
    "such a part beside a file": (part(NO_TEXT) + A_FILE + b"--x--\r\n", PARTS, 400, "are not UTF-8"),
    "such a part in base64": (part(b"7aCAYWJj", more=BASE64) + b"--x--\r\n", PARTS, 400, "are not UTF-8"),
    "a part's name that is no text": (part(b"1", b'name="\xff"') + b"--x--\r\n", PARTS, 400, "are not UTF-8"),
}
ACTS = ("pauses", "resumptions", "cancellations", "retries", "reconciliations", "answers/{nobody}")
PAGES = [
    *("/login", "/login/demo", "/logout", "/runs/new", "/account/password", "/admin/auth/user/add/"),
    *("/account/keys", "/account/session-ends", "/people/invitations", "/people/1/session-ends"),
    *("/reset", "/reset/MQ/x"),
    *(f"/runs/{{run}}/{act}" for act in ACTS),
    "/approvals/{nobody}/decision",
]


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level("INFO"):
        yield lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info]


def somebody(*held: str) -> Client:
    """Return a signed-in browser with these roles (without any: an administrator), which also sends the CSRF header."""
    browser = Client(enforce_csrf_checks=True, raise_request_exception=False)
    is_boss = not held
    browser.force_login(person(" ".join(held) or "boss", *(held or ROLES), is_superuser=is_boss, is_staff=is_boss))
    browser.get("/account/password")
    browser.defaults["HTTP_X_CSRFTOKEN"] = browser.cookies[django_settings.CSRF_COOKIE_NAME].value
    return browser


@pytest.mark.needs
@each_case("kind", UNREADABLE)
def test_a_form_that_can_not_be_read_is_an_ordinary_refusal_on_every_page(
    start: Callable[..., Any], errors: Callable[[], list[str]], kind: str
) -> None:
    raw, sent_as, status, words = UNREADABLE[kind]
    run = start()["id"]
    browser = somebody()
    for path in sample(PAGES, 4):
        answer = browser.generic("POST", path.format(run=run, nobody=UUID(int=1)), raw, content_type=sent_as)
        page = answer.content.decode()
        assert answer.status_code == status, (path, answer.status_code)
        assert words in page and "Invalid request" in page, path
        assert "DATA_UPLOAD" not in page and "boundary" not in page, path
    assert errors() == []
    assert Run.objects.get().state == "pending" and browser.get("/account/password").status_code == 200


@pytest.mark.needs
@each_case(
    ("raw", "sent_as"),
    [
        ("justification=caf%c3%a9+\ufffd".encode(), FORM),
        (part("café \ufffd".encode()) + b"--x--\r\n", PARTS),
        (part(b"why") + A_FILE + b"--x--\r\n", PARTS),
    ],
)
def test_a_text_form_is_read_without_any_file(start: Callable[..., Any], raw: bytes, sent_as: str) -> None:
    answer = somebody().generic("POST", f"/runs/{start()['id']}/pauses", raw, content_type=sent_as)
    is_taken = b"filename" not in raw  # no form here takes a file; that is another refusal
    assert answer.status_code == (302 if is_taken else 422) and "not UTF-8" not in answer.content.decode()


@pytest.mark.needs
@each_case("kind", UNREADABLE)
def test_the_api_takes_no_form(
    start: Callable[..., Any], operator: Api, errors: Callable[[], list[str]], kind: str
) -> None:
    raw, sent_as, *_ = UNREADABLE[kind]
    is_no_text = "charset" in sent_as
    run = start()["id"]
    browser = somebody()
    for path in sample(["runs", *(f"runs/{run}/{act}" for act in ("pause", "cancel", "signals/go", "reconcile"))], 3):
        by_key = operator.send(path, raw, content_type=sent_as)
        by_session = browser.generic("POST", f"/api/v1/{path}", raw, content_type=sent_as)
        for answer in (by_key, by_session):
            assert is_problem(answer, 400 if is_no_text else 415), path
            assert "DATA_UPLOAD" not in answer.content.decode()
    assert errors() == []
    assert Run.objects.get().state == "pending"


@pytest.mark.needs
@each_case(
    "path",
    "/ /login /runs /inbox /runs/new /account/password /admin/ /admin/auth/user/ /audit /fleet".split(),
)
def test_an_address_of_thousands_of_names_is_an_ordinary_refusal(errors: Callable[[], list[str]], path: str) -> None:
    query, browser = "&".join(f"a{n}" for n in range(2000)), somebody()
    for address in (f"{path}?{query}", f"{path}?fragment=live&{query}", f"{path}?" + "&" * 2000):
        answer = browser.get(address)
        assert answer.status_code == 400 and f"at most {LIMIT}" in answer.content.decode(), address[:40]
    assert errors() == []


@pytest.mark.needs
@each_case(
    ("raw", "sent_as"),
    [(b"{", "application/json"), (b'{"agent": "\\u0000"}', "application/json"), (b"f=1", FORM), (parts(2000), PARTS)],
)
def test_a_session_of_the_wrong_role_is_told_so_before_anything_of_its_body(raw: bytes, sent_as: str) -> None:
    auditor = somebody("auditor")
    refused = auditor.generic("POST", "/api/v1/runs", raw, content_type=sent_as)
    assert is_problem(refused, 403) and refused.json()["detail"] == "None of your roles allows this."
    del auditor.defaults["HTTP_X_CSRFTOKEN"]
    token = auditor.cookies[django_settings.CSRF_COOKIE_NAME].value
    for body in (raw, f"csrfmiddlewaretoken={token}".encode()):
        assert is_problem(auditor.generic("POST", "/api/v1/runs", body, content_type=sent_as), 403)
