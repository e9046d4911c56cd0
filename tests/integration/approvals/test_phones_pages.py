"""Devices on the page of somebody's account: let be told, taken away, and ended by signing out there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from approvals.models import Device
from approvals.push import vapid
from durableagents.signin import factors
from ledger.actors import Actor
from tests.integration.approvals.push_service import Browser, Service
from tests.integration.approvals.setup import somebody
from tests.integration.approvals.test_phones import FINANCE, service, subscribed
from tests.integration.signin.conftest import PASSWORD, secret_on

__all__ = ["service"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def page(service: Service) -> Client:
    user = User.objects.create_user("fiona", password=PASSWORD)
    user.groups.set([Group.objects.get_or_create(name=FINANCE)[0]])
    client = Client(HTTP_USER_AGENT="Mozilla/5.0 (Linux; Android 15) Chrome/140")
    client.post("/login", {"username": "fiona", "password": PASSWORD})
    return client


def let(client: Client, browser: Browser) -> Any:
    return client.post("/account/devices", browser.body)


def test_it_is_listed_and_taken_away_on_the_account_s_page_without_its_address(page: Client, service: Service) -> None:
    phone = service.device("secret-part")
    answer = let(page, phone)
    (cookie,) = [each for name, each in answer.cookies.items() if name.startswith("durableagents_device_")]
    assert cookie["httponly"] and cookie["samesite"] == "Lax"
    text = page.get("/account").content.decode()
    assert "Chrome on Android" in text and "by localhost" in text and "this one" in text
    assert "secret-part" not in text and vapid.own().public in text
    device = Device.objects.get()
    assert device.person == User.objects.get(username="fiona").pk
    other = Client()
    somebody("eve", FINANCE)
    other.force_login(User.objects.get(username="eve"))
    assert other.post(f"/account/devices/{device.pk}/removals").status_code == 404
    assert page.post(f"/account/devices/{device.pk}/removals").status_code == 302
    assert "Chrome on Android" not in page.get("/account").content.decode().partition("Told of things")[2]
    assert page.post(f"/account/devices/{device.pk}/removals").status_code == 404


def test_signing_out_there_ends_it_and_elsewhere_does_not(page: Client, service: Service) -> None:
    let(page, service.device())
    elsewhere = Client()
    elsewhere.post("/login", {"username": "fiona", "password": PASSWORD})
    elsewhere.post("/logout")
    assert Device.objects.filter(ended_at__isnull=True).count() == 1
    page.post("/logout")
    assert Device.objects.get().why == "somebody signed out there"
    assert not any(each.value for name, each in page.cookies.items() if name.startswith("durableagents_device_"))


@pytest.mark.parametrize("act", ["a new password", "a second factor"])
def test_what_ends_the_other_sessions_ends_other_devices(page: Client, service: Service, act: str) -> None:
    let(page, service.device())
    fiona = Actor("user", "fiona", person=User.objects.get(username="fiona").pk)
    subscribed(fiona, service.device(), "Firefox on Linux")
    frank = somebody("frank", FINANCE)
    subscribed(frank, service.device(), "Safari on iPhone")
    new = "a staple nobody knows"
    if act == "a new password":
        answer = page.post("/account/password", {"old_password": PASSWORD, "new_password1": "x", "new_password2": new})
        assert answer.status_code == 422 and Device.objects.filter(ended_at__isnull=True).count() == 3
        page.post("/account/password", {"old_password": PASSWORD, "new_password1": new, "new_password2": new})
    else:
        secret = secret_on(page.get("/account/second-factor"))
        code = format_hotp_value(hotp_value(secret, int(factors.now_seconds()) // 30))
        assert page.post("/account/second-factor", {"code": code}).status_code == 200
    live = Device.objects.filter(ended_at__isnull=True).values_list("name", flat=True)
    assert sorted(live) == ["Chrome on Android", "Safari on iPhone"]


def test_a_command_makes_the_key_once_and_shows_its_public_part(
    settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "push.pem"
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"push_key": path})
    call_command("push_key")
    first = capsys.readouterr().out
    assert path.stat().st_mode & 0o777 == 0o600 and vapid.own().public in first and "PRIVATE" not in first
    call_command("push_key")
    assert vapid.own().public in capsys.readouterr().out and "PRIVATE KEY" in path.read_text()
