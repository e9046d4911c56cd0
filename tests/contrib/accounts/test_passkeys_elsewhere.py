"""Passkeys in forged rows, and at addresses that can't have any."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.test import Client

from durableagents.contrib.accounts import passkeys, webauthn
from ledger.models import AccountRecord
from tests.contrib.accounts.authenticator import Device, b64, cose
from tests.contrib.accounts.conftest import Someone
from tests.contrib.accounts.test_passkeys import device, sign_in, with_passkey
from tests.rewriting import rewrite

__all__ = ["device", "with_passkey"]
pytestmark = pytest.mark.django_db


# --- forged rows ---


def test_a_public_key_that_somebody_puts_into_the_table_opens_nothing(
    with_passkey: Someone, someone: Callable[..., Someone], device: Device
) -> None:
    eve = someone("eve", "operator")
    mine = Device(device.origin, device.rp_id)
    row = Authenticator.objects.get(type="webauthn")
    plain = json.dumps({"id": mine.id, "key": cose(mine.key).hex(), "rp_id": mine.rp_id})
    for sealed in (plain, "1:" + b64(plain.encode()), "", row.data["sealed"]):
        Authenticator.objects.filter(user=eve.user).delete()
        Authenticator.objects.create(
            user=eve.user, type="webauthn", data={**row.data, "id": passkeys._digest(mine.id), "sealed": sealed}
        )
        assert sign_in(Client(), mine).status_code == 422
    # moved to another account it is valid for neither
    Authenticator.objects.filter(user=eve.user).delete()
    rewrite(Authenticator.objects.filter(pk=row.pk), user=eve.user)
    assert sign_in(Client(), device).status_code == 422
    eve.sign_in()
    assert passkeys.of_account(eve.user)[0].credential == ""
    moved = AccountRecord.objects.filter(action="factor_changed").latest("id")
    assert moved.by.startswith("database:") and moved.after["user_id"] == eve.user.pk


@pytest.mark.parametrize("data", [{}, {"sealed": 7}, {"sealed": "1:!!"}, [], "x"])
def test_a_damaged_row_breaks_no_page_and_can_be_taken_away(olga: Someone, data: Any) -> None:
    olga.sign_in()
    row = Authenticator.objects.create(user=olga.user, type="webauthn", data=data)
    page = olga.client.get("/account/second-factor")
    assert page.status_code == 200 and "can’t be read" in page.content.decode()
    assert olga.client.post(f"/account/passkeys/{row.pk}/removals").status_code == 302
    assert not Authenticator.objects.exists()


# --- where passkeys exist ---


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"public_url": None, "stage": "production"}, "set DURABLEAGENTS_BASE_URL"),
        ({"public_url": "http://agents.example.org"}, "only for https"),
        ({"public_url": "https://192.0.2.7"}, "numbers"),
        ({"public_url": "https://[2001:db8::1]:8443"}, "numbers"),
        ({"public_url": "https://agents.example.org", "passkey_domain": "example.com"}, "DURABLEAGENTS_PASSKEY_DOMAIN"),
        ({"public_url": "https://agents.example.org", "passkey_domain": "ents.example.org"}, "not in it"),
    ],
)
def test_an_address_for_which_browsers_make_none_is_refused_by_name(
    olga: Someone, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], why: str
) -> None:
    monkeypatch.setattr(settings, "DURABLEAGENTS", settings.DURABLEAGENTS.model_copy(update=said))
    with pytest.raises(webauthn.PasskeysUnavailable, match=why):
        webauthn.site()
    olga.sign_in()
    page = olga.client.get("/account/second-factor").content.decode()
    assert unescape(why) in unescape(page) and "Add a passkey" not in page
    assert olga.client.post("/account/passkeys/new", {"name": "x"}).status_code == 409
    assert why in Client().get("/login/passkey").json()["problem"]


def test_a_domain_above_the_address_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"public_url": "https://Agents.example.org:8443/x", "passkey_domain": "example.org"}
    monkeypatch.setattr(settings, "DURABLEAGENTS", settings.DURABLEAGENTS.model_copy(update=fields))
    assert webauthn.site() == webauthn.Site("example.org", "https://agents.example.org:8443")


def test_one_that_was_made_for_another_address_is_listed_and_not_asked_for(
    with_passkey: Someone, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"public_url": "https://agents.example.org"}
    monkeypatch.setattr(settings, "DURABLEAGENTS", settings.DURABLEAGENTS.model_copy(update=fields))
    assert not passkeys.is_usable(with_passkey.user)
    with_passkey.sign_in()
    assert "data-passkey" not in with_passkey.client.get("/login/code").content.decode().replace("passkeys.js", "")
    assert sign_in(Client(), device).status_code == 422
