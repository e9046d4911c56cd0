"""People who sign in, and their devices."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client

from durableagents.contrib.accounts import factors
from durableagents.contrib.accounts.sealing import Adapter, sealed_for
from durableagents.env import OidcProvider
from durableagents.identity.sessions import PROVED
from durableagents.models import Attempts
from tests.contrib.accounts.idp import CLIENT, SECRET, Idp, serving
from tests.integration.console.conftest import ada, finance, operator, reader

__all__ = ["ada", "finance", "operator", "reader"]

PASSWORD = "correct horse battery"


class Clock:
    seconds = 1_800_000_000.0

    def pass_steps(self, steps: int = 1) -> None:
        self.seconds += 30 * steps


@dataclass
class Someone:
    user: User
    clock: Clock
    client: Client = field(default_factory=Client)
    secret: str = ""

    def code(self, skew: int = 0) -> str:
        """Return the device's code; `skew` is its clock's difference in steps."""
        return code_of(self.secret, self.clock.seconds + 30 * skew)

    def sign_in(self, password: str = PASSWORD, **more: str) -> Any:
        return self.client.post("/login", {"username": self.user.username, "password": password, **more})

    def give_code(self, code: str) -> Any:
        return self.client.post("/login/code", {"code": code})

    def is_in(self) -> bool:
        return bool(self.client.get("/account/password").status_code == 200)

    def set_up(self) -> list[str]:
        self.secret = secret_on(self.client.get("/account/second-factor"))
        answer = self.client.post("/account/second-factor", {"code": self.code()})
        assert answer.status_code == 200, answer.content
        self.clock.pass_steps()
        return codes_on(answer)

    def elsewhere(self) -> Someone:
        return Someone(self.user, self.clock, secret=self.secret)


def code_of(secret: str, seconds: float) -> str:
    """Return the code that a device with this secret shows at a time."""
    return TOTP(base64.b32decode(secret), 6, SHA1(), 30).generate(int(seconds)).decode()


def secret_on(page: Any) -> str:
    (found,) = re.findall(r"<code>([A-Z2-7 ]+)</code>", page.content.decode())
    return str(found).replace(" ", "")


def codes_on(page: Any) -> list[str]:
    return re.findall(r"<li>(\d{8})</li>", page.content.decode())


@pytest.fixture(autouse=True)
def _forgiving(db: None) -> None:
    Attempts.objects.all().delete()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(factors, "now_seconds", lambda: found.seconds)
    return found


@pytest.fixture
def someone(db: None, clock: Clock) -> Callable[..., Someone]:
    def of_name(name: str = "olga", *roles: str, **more: Any) -> Someone:
        user = User.objects.create_user(name, password=PASSWORD, **more)
        user.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
        return Someone(user, clock)

    return of_name


@pytest.fixture
def olga(someone: Callable[..., Someone]) -> Someone:
    return someone("olga", "operator")


@pytest.fixture
def with_factor(olga: Someone) -> Someone:
    olga.secret = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
    with sealed_for(olga.user):
        sealed = Adapter().encrypt(olga.secret)
    Authenticator.objects.create(user=olga.user, type="totp", data={"secret": sealed})
    return olga


@pytest.fixture
def required() -> Iterator[Callable[..., None]]:
    before = settings.DURABLEAGENTS

    def roles(*patterns: str) -> None:
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"second_factor_roles": [*patterns]})

    yield roles
    settings.DURABLEAGENTS = before


def grow_old(client: Client) -> None:
    session = client.session
    session[PROVED] = "2026-01-01T00:00:00+00:00"
    session.save()


@pytest.fixture(scope="session")
def _server() -> Iterator[Idp]:
    with serving() as found:
        yield found


@pytest.fixture
def configure(tmp_path: Path, idp: Idp) -> Iterator[Callable[..., OidcProvider]]:
    before, secret = settings.DURABLEAGENTS, tmp_path / "secret"
    secret.write_text(SECRET + "\n")

    def as_(**more: Any) -> OidcProvider:
        found = OidcProvider(
            **{"id": "corp", "name": "Corp", "issuer": idp.issuer, "client_id": CLIENT, "client_secret_file": secret}
            | more
        )
        settings.DURABLEAGENTS = before.model_copy(update={"oidc": [found]})
        return found

    as_()
    yield as_
    settings.DURABLEAGENTS = before


@pytest.fixture
def idp(_server: Idp) -> Idp:
    _server.lies, _server.claims = {}, {"sub": "248289761001"}
    return _server
