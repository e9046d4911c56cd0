"""Sign-in settings are typed, and a wrong one is reported in one line that names it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from durableagents import env
from durableagents.checks import check_signing_in
from tests.conftest import CHECKOUT

GIVEN = {
    "id": "corp",
    "name": "Corp",
    "issuer": "https://id.example.org",
    "client_id": "us",
    "client_secret_file": "/s",
}


def read(monkeypatch: pytest.MonkeyPatch, *providers: dict[str, Any] | str) -> env.Environment:
    text = providers[0] if providers and isinstance(providers[0], str) else json.dumps(providers)
    monkeypatch.setenv("DURABLEAGENTS_OIDC", str(text))
    return env.load()


def test_providers_are_a_list_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = read(monkeypatch, GIVEN).oidc
    assert (one.id, one.issuer, one.scopes, one.roles) == ("corp", GIVEN["issuer"], ("openid", "email", "profile"), {})
    assert not one.has_second_factor and not one.creates_in and one.email_domains == ()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{", "not JSON"),
        ('{"id": "corp"}', "valid list"),
        ("[7]", "0"),
        ([{**GIVEN, "id": "Corp!"}], "match pattern"),
        ([{**GIVEN, "issuer": "http://id.example.org"}], "not an address like https://"),
        ([{**GIVEN, "issuer": "https://id.example.org/?x=1"}], "not an address like https://"),
        ([{**GIVEN, "issuer": "https://user@id.example.org"}], "not an address like https://"),
        ([{**GIVEN, "client_secret": "in the open"}], "client_secret"),
        ([GIVEN, {**GIVEN, "issuer": "https://other.example.org"}], "the id 'corp' is named twice"),
        ([GIVEN, {**GIVEN, "id": "other"}], "is named twice"),
    ],
)
def test_a_wrong_provider_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, given: Any, told: str) -> None:
    with pytest.raises(env.EnvironmentProblem, match="DURABLEAGENTS_OIDC") as refused:
        read(monkeypatch, *([given] if isinstance(given, str) else given))
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_roles_that_need_a_second_factor_are_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLEAGENTS_REQUIRE_SECOND_FACTOR", "operator, approver_*,")
    assert env.load().second_factor_roles == ["operator", "approver_*"]


@pytest.fixture
def _restored() -> Iterator[None]:
    before = settings.DURABLEAGENTS
    yield
    settings.DURABLEAGENTS = before


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"second_factor_roles": ["aprover_*"]}, "'aprover_*' matches no role"),
        ({"client_secret_file": Path("/nowhere/at/all")}, "corp: client_secret_file can't be read"),
        ({"client_secret_file": Path("/dev/null")}, "/dev/null is empty"),
        ({"creates_in": "operator"}, "is a role"),
        ({"roles": {"finance": "aprover_finance"}}, "there is no role 'aprover_finance'"),
        ({"issuer": "http://127.0.0.1:9", "stage": "production"}, "is not https"),
    ],
)
def test_what_can_not_be_right_starts_nothing(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    (secret := tmp_path / "secret").write_text("s")
    outer = {name: value for name, value in change.items() if name in ("second_factor_roles", "stage")}
    provider = env.OidcProvider(
        **{**GIVEN, "client_secret_file": secret, **{n: v for n, v in change.items() if n not in outer}}
    )
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"oidc": [provider], **outer})
    with pytest.raises(ImproperlyConfigured) as refused:
        check_signing_in()
    assert told in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.long
def test_no_process_loads_what_only_signing_in_needs() -> None:
    """Workers need no HTTP client, web tokens, QR codes or security keys; web loads them at such a sign-in."""
    heavy = ("jwt", "oauthlib", "qrcode", "fido2")
    for imports, none_of in (("runs.workers.run_loop", ("requests", *heavy)), ("durableagents.urls", heavy)):
        look = f"import django, sys; django.setup(); import {imports}; print(*({{*sys.modules}} & {{*{none_of}}}))"
        found = subprocess.run([sys.executable, "-c", look], cwd=CHECKOUT, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "", (imports, found.stdout)
