"""An administrator, and helpers for the tests of accounts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.hashers import get_hasher
from django.contrib.auth.models import Group, User
from django.core import mail as sent

from durableagents.contrib.accounts import invitations, resets
from durableagents.contrib.accounts.models import Invitation
from ledger.actors import Actor
from tests.integration.console.conftest import Reader

BOSS = Actor("user", "boss", role="admin", auth="session", address="192.0.2.9")
PASSWORD = "a staple nobody knows"
MAIL_URL, MAIL_FROM = "smtp://mail.example.org", "agents@example.org"


def boss_account(name: str = "boss") -> User:
    user, _ = User.objects.get_or_create(username=name, defaults={"is_superuser": True, "is_staff": True})
    return user


def boss(name: str = "boss") -> Reader:
    return Reader(boss_account(name))


def invite(name: str = "ada", *roles: str, **more: Any) -> tuple[Invitation, str]:
    for role in roles or ("approver_finance",):
        Group.objects.get_or_create(name=role)
    user = boss_account()
    by = Actor("user", user.username, role="admin", auth="session", person=user.pk)
    given = {"is_admin": False, "email": f"{name}@example.org", "justification": "She joins us.", **more}
    row, link = invitations.invite(name=name, roles=roles or ("approver_finance",), by=by, **given)
    return row, path_of(link)


def meanwhile(monkeypatch: pytest.MonkeyPatch, password: str, act: Callable[[], object]) -> None:
    """Run `act` while this password is hashed for the first time."""
    hasher = type(get_hasher())
    plain, waiting = hasher.encode, [act]

    def encode(self: Any, given: str, *args: Any, **more: Any) -> str:
        if given == password and waiting:
            waiting.pop()()
        return str(plain(self, given, *args, **more))

    monkeypatch.setattr(hasher, "encode", encode)


def path_of(link: str) -> str:
    return re.sub(r"^https?://[^/]+", "", link)


def chosen(password: str = PASSWORD, again: str | None = None, **more: str) -> dict[str, str]:
    return {"new_password1": password, "new_password2": password if again is None else again, **more}


def reset_path(user: User) -> str:
    return path_of(resets.make_link(user.pk, by=BOSS, justification="She lost it.")[1])


def mailed(number: int = 1, seconds: float = 60.0) -> list[Any]:
    began = time.monotonic()
    while len(sent.outbox) < number:
        assert time.monotonic() < began + seconds, f"only {len(sent.outbox)} of {number} mails"
        time.sleep(0.02)
    return list(sent.outbox)
