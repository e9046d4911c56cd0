"""Set-up pages: for administrators only, and never a way around the record."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.test import Client

from durableagents.models import ApiKey
from ledger.web.roles import ROLES
from tests.api.conftest import Api, person

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss() -> Client:
    client = Client()
    client.force_login(person("boss", is_staff=True, is_superuser=True))
    return client


def test_only_users_roles_and_keys_are_set_up_here() -> None:
    names = {model._meta.label for model in admin.site._registry}
    assert names == {"auth.User", "auth.Group", "durableagents.ApiKey"}


@pytest.mark.parametrize("role", [*ROLES, None])
def test_nobody_else_gets_in(role: str | None) -> None:
    client = Client()
    if role is None:
        assert client.get("/admin/", follow=True).redirect_chain[-1][0].startswith("/login?next=/admin/")
        return
    client.force_login(person(role, role))
    assert client.get("/admin/", follow=True).status_code == 403


def test_a_key_is_shown_once_and_works_until_it_is_revoked(boss: Client) -> None:
    ada = person("ada", "auditor")
    answer = boss.post("/admin/durableagents/apikey/add/", {"user": ada.pk, "name": "laptop"}, follow=True)
    (token,) = re.findall(r"da_[\w-]{40,}", answer.content.decode())
    assert Api(token).get("runs").status_code == 200
    assert token not in boss.get("/admin/durableagents/apikey/").content.decode()
    key = ApiKey.objects.get()
    assert boss.get(f"/admin/durableagents/apikey/{key.pk}/change/").status_code in (200, 403)
    assert boss.post(f"/admin/durableagents/apikey/{key.pk}/delete/", {"post": "yes"}).status_code == 403
    boss.post("/admin/durableagents/apikey/", {"action": "revoke", "_selected_action": [key.pk]})
    assert Api(token).get("runs").status_code == 401


def test_the_pages_load_nothing_that_the_policy_forbids(boss: Client) -> None:
    for address in ("/admin/", "/admin/auth/user/add/", "/admin/durableagents/apikey/"):
        html = boss.get(address).content.decode()
        assert re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*type=.application/json)[^>]*>", html) == []
        assert not re.findall(r"\son\w+=", html)
