"""A statement that takes too long is cancelled and reported; the web process continues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client

from durableagents.databases import django_databases, limit_statements
from durableagents.env import Environment
from durableagents.identity.auth import issue_key
from ledger.web.roles import ROLES
from tests.conftest import database_urls
from tests.system.api.web import Web, serving

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def web(process_env: dict[str, str]) -> Iterator[Web]:
    limited = {"DURABLEAGENTS_WEB_STATEMENT_SECONDS": "0.3", "DURABLEAGENTS_SECRET_KEY": settings.SECRET_KEY}
    with serving(process_env | limited) as running:
        yield running


def test_a_slow_statement_is_answered_as_unavailable(
    web: Web, process_env: dict[str, str], postgres: Mapping[str, str]
) -> None:
    user = User.objects.create(username="everybody")
    user.groups.set(Group.objects.filter(name__in=ROLES))
    headers = {"Authorization": f"Bearer {issue_key(user, 'key')}"}
    browser = Client()
    browser.force_login(user)
    (session,) = (morsel.value for morsel in browser.cookies.values())
    cookies = {"Cookie": f"durableagents_session_{process_env['PORT']}={session}"}
    assert web.client.get("/runs", headers=cookies).status_code == 200
    # Waiting for a lock is a slow statement; the limit on locks is longer than the one on statements here.
    with psycopg.connect(database_urls(postgres)["admin"]) as admin:
        admin.execute("LOCK TABLE runs_run IN ACCESS EXCLUSIVE MODE")
        refused: Any = web.client.get("/api/v1/runs", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (503, "busy")
        assert refused.headers["Content-Type"] == "application/problem+json" and refused.headers["Retry-After"]
        page = web.client.get("/runs", headers=cookies)
        assert page.status_code == 503 and "Retry-After" in page.headers and "<" in page.text
        admin.rollback()
    assert web.client.get("/api/v1/runs", headers=headers).status_code == 200
    assert web.client.get("/runs", headers=cookies).status_code == 200


def test_only_the_web_is_limited_and_an_address_may_say_otherwise(postgres: Mapping[str, str]) -> None:
    def shown(url: str, **more: Any) -> str:
        environment = Environment(DATABASE_URL=url, **more)  # type: ignore[call-arg]
        options = django_databases(environment)["default"]["OPTIONS"]
        before = options["options"]
        limit_statements(options, environment)
        assert "statement_timeout" not in before or "statement_timeout=7000" in before
        with psycopg.connect(url.split("&options")[0], options=options["options"]) as link:
            row = link.execute("SHOW statement_timeout").fetchone()
            assert row is not None
            return str(row[0])

    url = database_urls(postgres)["runtime"]
    assert shown(url) == "15s"
    assert shown(url, DURABLEAGENTS_WEB_STATEMENT_SECONDS="0") == "0"
    assert shown(f"{url}&options=-c%20statement_timeout%3D7000") == "7s"
