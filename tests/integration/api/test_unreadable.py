"""A request that can't be read is refused in words, at every door alike, and leaves no traceback in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.test import Client

from ledger.web.roles import ROLES
from runs.models import Run
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem, person

pytestmark = pytest.mark.django_db

FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
LIMIT = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS


def parts(count: int, more: str = "") -> bytes:
    head = "".join(f'--x\r\nContent-Disposition: form-data; name="f{n}"{more}\r\n\r\n1\r\n' for n in range(count))
    return f"{head}--x--\r\n".encode()


def part(value: bytes, head: bytes = b'name="justification"', more: bytes = b"") -> bytes:
    return b"--x\r\nContent-Disposition: form-data; " + head + more + b"\r\n\r\n" + value + b"\r\n"


NO_TEXT, A_FILE = b"\xed\xa0\x80abc", part(b"\xff\xfe", b'name="f"; filename="a"')
BASE64 = b"\r\nContent-Transfer-Encoding: base64"
# What is sent, and what is said to it.
UNREADABLE: dict[str, tuple[bytes, str, int, str]] = {
    "too many fields": (b"&".join(b"f%d=1" % n for n in range(2000)), FORM, 400, f"{LIMIT} at most"),
    "too many parts": (parts(2000), PARTS, 400, f"{LIMIT} at most"),
    "too many files": (parts(200, '; filename="a"'), PARTS, 400, "more files than are read"),
    "too large": (b"justification=" + b"x" * 3_000_000, FORM, 413, "larger than is accepted"),
    "no boundary": (parts(1), "multipart/form-data", 400, "parts of the form"),
    "a boundary without end": (parts(1), "multipart/form-data; boundary=" + "x" * 300, 400, "parts of the form"),
    "a part's endless head": (parts(1, "; a=b" * 5000), PARTS, 400, "parts of the form"),
    "parts in no encoding of text": (parts(1), f"{PARTS}; charset=rot13", 400, "has to be in UTF-8"),
    "parts in bytes for text": (parts(1), f"{PARTS}; charset=hex", 400, "has to be in UTF-8"),
    "parts in another encoding": (parts(1), f"{PARTS}; charset=utf-16", 400, "has to be in UTF-8"),
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
    """What was logged as an error or with a traceback."""
    with caplog.at_level("INFO"):
        yield lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info]


def somebody(*held: str) -> Client:
    """Somebody with these roles (an administrator with every role), signed in, whose browser brings the form's token in
    a header too."""
    browser = Client(enforce_csrf_checks=True, raise_request_exception=False)
    is_boss = not held
    browser.force_login(person(" ".join(held) or "boss", *(held or ROLES), is_superuser=is_boss, is_staff=is_boss))
    browser.get("/account/password")
    browser.defaults["HTTP_X_CSRFTOKEN"] = browser.cookies[settings.CSRF_COOKIE_NAME].value
    return browser


@each_case("kind", UNREADABLE)
def test_a_form_that_can_not_be_read_is_an_ordinary_refusal_on_every_page(
    start: Callable[..., Any], errors: Callable[[], list[str]], kind: str
) -> None:
    raw, sent_as, status, words = UNREADABLE[kind]
    run = start()["id"]
    browser = somebody()
    for path in PAGES:
        answer = browser.generic("POST", path.format(run=run, nobody=UUID(int=1)), raw, content_type=sent_as)
        page = answer.content.decode()
        assert answer.status_code == status, (path, answer.status_code)
        assert words in page and "The request can't be read" in page, path
        assert "DATA_UPLOAD" not in page and "boundary" not in page, path
    assert errors() == []
    assert Run.objects.get().state == "pending" and browser.get("/account/password").status_code == 200


@each_case(
    ("raw", "sent_as"),
    [
        ("justification=caf%c3%a9+\ufffd".encode(), FORM),
        (part("café \ufffd".encode()) + b"--x--\r\n", PARTS),
        (part(b"why") + A_FILE + b"--x--\r\n", PARTS),
    ],
)
def test_a_form_that_is_text_is_read_and_a_file_need_not_be_any(
    start: Callable[..., Any], raw: bytes, sent_as: str
) -> None:
    answer = somebody().generic("POST", f"/runs/{start()['id']}/pauses", raw, content_type=sent_as)
    is_taken = b"filename" not in raw  # no form here takes a file, which is another refusal
    assert answer.status_code == (302 if is_taken else 422) and "not UTF-8" not in answer.content.decode()


@each_case("kind", UNREADABLE)
def test_the_api_takes_no_form_and_says_so(
    start: Callable[..., Any], operator: Api, errors: Callable[[], list[str]], kind: str
) -> None:
    raw, sent_as, *_ = UNREADABLE[kind]
    is_no_text = "charset" in sent_as
    run = start()["id"]
    browser = somebody()
    for path in ("runs", f"runs/{run}/pause", f"runs/{run}/cancel", f"runs/{run}/signals/go", f"runs/{run}/reconcile"):
        by_key = operator.send(path, raw, content_type=sent_as)
        by_session = browser.generic("POST", f"/api/v1/{path}", raw, content_type=sent_as)
        for answer in (by_key, by_session):
            assert is_problem(answer, 400 if is_no_text else 415), path
            assert "DATA_UPLOAD" not in answer.content.decode()
    assert errors() == []
    assert Run.objects.get().state == "pending"


@each_case(
    "path",
    [
        "/",
        "/login",
        "/runs",
        "/inbox",
        "/runs/new",
        "/account/password",
        "/admin/",
        "/admin/auth/user/",
        "/audit",
        "/fleet",
    ],
)
def test_an_address_of_thousands_of_names_is_an_ordinary_refusal(errors: Callable[[], list[str]], path: str) -> None:
    query, browser = "&".join(f"a{n}" for n in range(2000)), somebody()
    for address in (f"{path}?{query}", f"{path}?fragment=live&{query}", f"{path}?" + "&" * 2000):
        answer = browser.get(address)
        assert answer.status_code == 400 and f"{LIMIT} at most" in answer.content.decode(), address[:40]
    assert errors() == []


@each_case(
    ("raw", "sent_as"),
    [(b"{", "application/json"), (b'{"agent": "\\u0000"}', "application/json"), (b"f=1", FORM), (parts(2000), PARTS)],
)
def test_a_session_of_the_wrong_role_is_told_so_before_anything_of_its_body(raw: bytes, sent_as: str) -> None:
    auditor = somebody("auditor")
    refused = auditor.generic("POST", "/api/v1/runs", raw, content_type=sent_as)
    assert is_problem(refused, 403) and refused.json()["detail"] == "None of your roles allows this."
    del auditor.defaults["HTTP_X_CSRFTOKEN"]
    token = auditor.cookies[settings.CSRF_COOKIE_NAME].value
    for body in (raw, f"csrfmiddlewaretoken={token}".encode()):
        assert is_problem(auditor.generic("POST", "/api/v1/runs", body, content_type=sent_as), 403)
