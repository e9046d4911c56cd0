"""Every error is a problem document: precise, stable, and without internals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import psycopg
import pytest
from django.db import DataError, OperationalError
from django.test import Client, override_settings
from django.urls import path
from rest_framework.exceptions import Throttled

from durableagents.urls import handler400, handler403, handler404, handler500, urlpatterns
from ledger.web.api_base import READ, ApiView
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem

# This module stands in as URL conf, with one address that raises what a test wants.
__all__ = ["handler400", "handler403", "handler404", "handler500"]
_RAISES: dict[str, Exception] = {}


class Raises(ApiView):
    roles = READ

    def get(self, request: Any) -> Any:
        raise _RAISES["error"]


def raises(request: Any) -> Any:
    raise _RAISES["error"]


urlpatterns = [path("api/raises", Raises.as_view()), path("api/bare", raises), path("page", raises), *urlpatterns]


@pytest.fixture
def faulty(caller: Callable[[Any], Api]) -> Iterator[Callable[[Exception, str], Any]]:
    def go(error: Exception, address: str = "/api/raises") -> Any:
        _RAISES["error"] = error
        return caller("auditor").get(address)

    with override_settings(ROOT_URLCONF=__name__):
        yield go


@pytest.mark.parametrize("error", [OperationalError("gone"), psycopg.OperationalError("gone")])
@pytest.mark.parametrize("address", ["/api/raises", "/api/bare"])
def test_a_lost_database_is_a_503_that_says_when_to_come_back(faulty: Any, error: Exception, address: str) -> None:
    answer = faulty(error, address)
    assert is_problem(answer, 503, "database-unavailable") and answer["Retry-After"]


def test_a_lost_database_is_a_503_on_pages_too(faulty: Any) -> None:
    answer = faulty(OperationalError("gone"), "/page")
    assert answer.status_code == 503 and answer["Retry-After"] and b"gone" not in answer.content


def test_page_of_an_outage_links_back_or_keeps_what_was_typed(faulty: Any) -> None:
    for address, link in (("/page?tab=a&b=<i>", "/page?tab=a&amp;b=%3Ci%3E"), ("//evil.example/page", None)):
        page = faulty(OperationalError("gone"), address).content.decode()
        assert link is None or f'href="{link}"' in page
        assert 'href="//' not in page and "<i>" not in page
    client = Client(raise_request_exception=False)
    with override_settings(ROOT_URLCONF=__name__):
        typed = {"text": "My <careful>\nreasons.", "csrfmiddlewaretoken": "its own"}
        sent, secret = client.post("/page?a=1", typed), client.post("/page", {"new_password1": "hunter2"})
    words = sent.content.decode()
    assert sent.status_code == secret.status_code == 503 and "Try again</a>" not in words
    assert '<form method="post" action="/page?a=1">' in words
    assert "My &lt;careful&gt;\nreasons.</textarea>" in words and "its own</textarea>" in words
    assert b"hunter2" not in secret.content and b"Go back" in secret.content


@pytest.mark.parametrize("address", ["/api/raises", "/api/bare"])
def test_a_bug_is_a_500_that_tells_nothing(faulty: Any, address: str) -> None:
    answer = faulty(RuntimeError("the secret is 42"), address)
    assert is_problem(answer, 500, "internal-error") and b"42" not in answer.content


def test_what_the_database_can_not_hold_is_the_callers_mistake(faulty: Any) -> None:
    assert is_problem(faulty(DataError("NUL")), 422, "invalid-input")


def test_too_many_requests_say_when_to_come_back(faulty: Any) -> None:
    answer = faulty(Throttled(wait=7))
    assert is_problem(answer, 429) and answer["Retry-After"] == "7"


@each_case(
    "address",
    "/api /api/ /api/v1 /api/v1/ /api/v1/nothing /api/v2/runs /api/v1/runs/ /api/v1/runs/x/pause".split(),
)
@each_case("method", ["GET", "POST", "DELETE"])
def test_addresses_that_lead_nowhere(address: str, method: str) -> None:
    answer = Client(enforce_csrf_checks=True).generic(method, address)
    assert is_problem(answer, 404, "not-found")


@each_case("run_id", [str(uuid4()), "x", "1", "00000000-0000-0000-0000-00000000000g", "%00", "a" * 5000])
@each_case("part", ["", "/events", "/ledger", "/transcript", "/overrides"])
def test_ids_that_are_not_there(auditor: Api, run_id: str, part: str) -> None:
    answer, unknown = auditor.get(f"runs/{run_id}{part}"), str(uuid4())
    assert is_problem(answer, 404, "not-found")
    of_unknown = auditor.get(f"runs/{unknown}{part}").json()
    visible = unquote(run_id)[:80]
    assert answer.json() == of_unknown | {"detail": of_unknown["detail"].replace(repr(unknown), repr(visible))}


def test_malformed_question_id_is_answered_as_an_unknown_question(operator: Api) -> None:
    answer = operator.post(f"runs/{uuid4()}/answers/abc", {"answer": 1})
    assert is_problem(answer, 404, "not-found") and "No question 'abc' exists" in answer.json()["detail"]


def test_a_method_that_is_not_there_says_which_are(auditor: Api) -> None:
    answer = auditor.send("runs", b"", method="DELETE")
    assert is_problem(answer, 405, "method-not-allowed")
    assert {"GET", "POST"} <= set(answer["Allow"].split(", "))


@each_case(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", ""],
)
def test_what_is_not_json_is_415(integrator: Api, kind: str) -> None:
    answer = integrator.send("runs", b"agent=order", content_type=kind)
    assert is_problem(answer, 415, "unsupported-media-type")
    assert "`Content-Type: application/json`" in answer.json()["detail"]


def test_whatever_a_client_accepts_it_gets_json(auditor: Api) -> None:
    for accept in ("text/html", "application/xml;q=1", "nonsense", "*/*", ""):
        answer = auditor.client.get("/api/v1/runs", headers=auditor.headers | {"Accept": accept})
        assert answer.status_code == 200 and answer["Content-Type"] == "application/json"


def test_a_host_that_is_not_ours_is_400_and_a_problem() -> None:
    assert is_problem(Client().get("/api/v1/runs", headers={"Host": "evil.example"}), 400)


def test_answers_are_not_cached(auditor: Api) -> None:
    assert auditor.get("runs")["Cache-Control"] == "no-store"
    assert auditor.get("runs/x")["Cache-Control"] == "no-store"
