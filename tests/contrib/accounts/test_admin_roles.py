"""Permissions: the pages of administrators, and pages behind a link."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.urls import reverse

from ledger.models import ActRecord
from ledger.web.roles import ROLES
from tests.contrib.accounts.addresses import ADMIN_ACT, ADMIN_READ, ALLOWED, LINKS
from tests.contrib.accounts.people import boss, boss_account
from tests.integration.console.conftest import Reader
from tests.integration.console.test_roles import ROUTES

pytestmark = pytest.mark.django_db


def _admin_path(name: str, user: int = 404) -> str:
    return reverse(name, kwargs=dict.fromkeys(ROUTES[name], user))


def test_what_is_the_administrators_opens_for_them_and_for_no_role(reader: Callable[..., Reader]) -> None:
    root = boss()
    assert root.user is not None
    given = {"justification": "Let me in.", "may": "yes", "name": "mine", "days": "3"}
    for role in (*ROLES, "none"):
        somebody = reader(role)
        for name in ADMIN_READ:
            assert somebody.get(_admin_path(name, root.user.pk)).status_code == 403, (role, name)
        for name in ADMIN_ACT | ALLOWED:
            assert somebody.post(_admin_path(name, root.user.pk), **given).status_code == 403, (role, name)
    for name in ADMIN_READ:
        assert root.get(_admin_path(name, root.user.pk)).status_code == 200, name
    for name in ADMIN_ACT:
        assert root.get(_admin_path(name, root.user.pk))["Location"].startswith("/people"), name
        assert root.post(_admin_path(name), justification="Try.").status_code in (404, 422), name
    assert not ActRecord.objects.exists()


def test_administrators_pages_need_a_sign_in_and_the_forms_token(reader: Callable[..., Reader]) -> None:
    boss()
    for name in ADMIN_READ | ADMIN_ACT | ALLOWED:
        answer = reader(None).post(_admin_path(name), justification="why")
        assert answer.status_code == 302 and answer["Location"] == "/login?next=/", name
    strict = Reader(boss_account(), checks_csrf=True)
    for name in ADMIN_ACT | ALLOWED:
        assert strict.post(_admin_path(name), justification="why").status_code == 403, name


def test_a_link_opens_for_nobody_by_being_signed_in(reader: Callable[..., Reader]) -> None:
    for somebody in (reader("operator"), reader(None), boss()):
        for name, path in LINKS.items():
            assert somebody.get(path).status_code == (200 if name == "reset" else 404), name
    for path in LINKS.values():
        assert reader(None, checks_csrf=True).post(path, who="ada").status_code == 403, path
