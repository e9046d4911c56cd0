"""Roles are read in one statement, and their loss takes effect with the next request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from durableagents.identity import people
from tests.cases import each_case
from tests.integration.console.conftest import Reader
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db


def asks(reader: Reader) -> int:
    return int(reader.get("/agents").status_code)


def named(reader: Reader) -> str:
    return str(reader.get("/api/v1/me").json().get("name", ""))


@each_case("knows", [True, False])
def test_what_ends_somebodys_way_in_counts_with_the_next_request(reader: Callable[..., Reader], knows: bool) -> None:
    def change(name: str, how: Callable[[Any, Reader], Any]) -> int:
        person = reader("operator", name=name)
        assert asks(person) == 200
        if not knows:
            people._owners.clear()
        how(person.user, person)
        return asks(person)

    def another_password(user: Any, _: Reader) -> None:
        user.set_password("another and a long one")
        user.save()

    assert change("a", lambda user, _: user.groups.clear()) == 403
    assert change("b", lambda user, _: rewrite(type(user).objects.filter(pk=user.pk), is_active=False)) == 302
    assert change("c", another_password) == 302
    assert change("d", lambda user, person: person.client.session.delete()) == 302
    assert change("e", lambda user, _: user.delete()) == 302


def test_a_role_that_is_given_counts_with_the_next_request(reader: Callable[..., Reader]) -> None:
    nobody = reader("none")
    assert asks(nobody) == 403
    assert nobody.user is not None
    nobody.user.groups.add(Group.objects.get_or_create(name="auditor")[0])
    assert asks(nobody) == 200


def test_a_session_is_its_own_however_wrong_this_process_remembers(reader: Callable[..., Reader]) -> None:
    ada, bob = reader("operator", name="ada"), reader("auditor", name="bob")
    assert (named(ada), named(bob)) == ("ada", "bob")
    assert ada.user is not None and bob.user is not None
    for wrong in (bob.user.pk, 2**31 - 1):
        people._owners[str(ada.client.session.session_key)] = wrong
        assert named(ada) == "ada"
    people._owners[str(bob.client.session.session_key)] = ada.user.pk
    assert bob.get("/runs/new").status_code == 403, "the operator's roles don't rub off"


def test_a_made_up_cookie_is_nobody_and_leaves_nothing_behind() -> None:
    from django.conf import settings

    client, before = Client(), dict(people._owners)
    for value in ("x" * 32, "", "' OR 1=1", "\x00" * 8, "é" * 40):
        client.cookies[settings.SESSION_COOKIE_NAME] = value
        assert client.get("/agents").status_code == 302
    assert people._owners == before


def test_signing_in_as_somebody_else_in_the_same_browser_is_somebody_else(reader: Callable[..., Reader]) -> None:
    ada, bob = reader("operator", name="ada"), reader("auditor", name="bob")
    assert named(ada) == "ada"
    ada.client.force_login(bob.user)
    assert named(ada) == "bob" and ada.get("/runs/new").status_code == 403


def test_what_is_remembered_is_bounded(reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "MAX_REMEMBERED", 2)
    for name in "abcde":
        assert asks(reader("operator", name=name)) == 200
        assert len(people._owners) <= 2
