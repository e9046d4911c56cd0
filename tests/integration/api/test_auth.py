"""Keys and sessions: how a caller authenticates."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from durableagents.identity.auth import issue_key
from durableagents.models import ApiKey
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem, person
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db


def test_only_the_digest_of_a_key_is_kept() -> None:
    token = issue_key(person("ada", "auditor"), "laptop")
    key = ApiKey.objects.get()
    assert bytes(key.hash) == hashlib.sha256(token.encode()).digest()
    assert token.startswith(key.prefix) and len(token) > 3 * len(key.prefix)
    assert token not in str(key.__dict__)


def test_a_given_key_is_entered_once() -> None:
    user = person("ada", "auditor")
    assert issue_key(user, "demo", token="da_given") == issue_key(user, "demo", token="da_given") == "da_given"
    assert ApiKey.objects.count() == 1


@each_case("header", ["Bearer", "Bearer ", "Bearer nonsense", "Bearer a b", "bearer \x00", "Bearer ü"])
def test_what_is_no_key_opens_nothing(header: str) -> None:
    answer = Client().get("/api/v1/runs", headers={"Authorization": header})
    assert is_problem(answer, 401, "unauthenticated")
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_a_key_without_its_scheme_is_told_what_is_missing() -> None:
    token = issue_key(person("ada", "auditor"), "demo")
    answer = Client().get("/api/v1/runs", headers={"Authorization": token})
    assert is_problem(answer, 401, "unauthenticated")
    assert "must start with Bearer" in answer.json()["detail"] and token not in answer.content.decode()


def test_a_wrong_address_names_the_list_of_addresses() -> None:
    for path in ("/api/v1/", "/api/v1/nothing"):
        answer = Client().get(path)
        assert is_problem(answer, 404, "not-found") and "/api/schema" in answer.json()["detail"], path


@each_case(
    "change",
    [
        {"revoked_at": timezone.now()},
        {"expires_at": timezone.now() - timedelta(seconds=1)},
    ],
)
def test_a_key_that_ended_opens_nothing(caller: Callable[[Any], Api], change: dict[str, Any]) -> None:
    api = caller("auditor")
    rewrite(ApiKey.objects.all(), **change)
    assert is_problem(api.get("runs"), 401)


def test_a_user_who_left_takes_the_keys_along(caller: Callable[[Any], Api]) -> None:
    api = caller("auditor")
    rewrite(ApiKey.objects.get().user.__class__.objects.all(), is_active=False)
    assert is_problem(api.get("runs"), 401)


def test_a_key_that_lasts_works_and_its_use_is_noted_once_a_minute(
    caller: Callable[[Any], Api],
) -> None:
    api = caller("auditor")
    rewrite(ApiKey.objects.all(), expires_at=timezone.now() + timedelta(hours=1))
    assert api.get("runs").status_code == 200
    first = ApiKey.objects.get().last_used_at
    assert first is not None and api.get("runs").status_code == 200
    assert ApiKey.objects.get().last_used_at == first


def test_a_wrong_key_is_not_rescued_by_a_session() -> None:
    client = Client()
    client.force_login(person("ada", "auditor"))
    assert client.get("/api/v1/runs").status_code == 200
    assert is_problem(client.get("/api/v1/runs", headers={"Authorization": "Bearer wrong"}), 401)


def test_a_session_writes_only_with_its_csrf_token_and_reads_without() -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(person("ivy", "integrator"))
    assert [client.get(f"/api/v1/{name}").status_code for name in ("runs", "agents")] == [200, 200]
    assert (client.head("/api/v1/runs").status_code, client.options("/api/v1/runs").status_code) == (200, 405)
    assert is_problem(client.post("/api/v1/runs", START, content_type="application/json"), 403)
    client.cookies["csrftoken"] = "a" * 32
    from django.conf import settings

    client.cookies[settings.CSRF_COOKIE_NAME] = "a" * 32
    answer = client.post("/api/v1/runs", START, content_type="application/json", headers={"X-CSRFToken": "a" * 32})
    assert answer.status_code == 201
    assert answer.json()["created_by"] == "user:ivy"


def test_a_key_needs_no_csrf_token_and_is_named_as_a_key(caller: Callable[[Any], Api]) -> None:
    api = caller("integrator")
    api.client = Client(enforce_csrf_checks=True)
    answer = api.post("runs", START)
    assert answer.status_code == 201 and answer.json()["created_by"] == "key:integrator"
