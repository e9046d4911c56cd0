"""Devices notified while no page is open: which, of what, who ends that, and addresses that are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import time, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from durableagents.contrib.accounts import factors
from durableagents.contrib.notifications import addressing, delivering, devices, preferences, texts, web_push
from durableagents.contrib.notifications.devices import DeviceBody
from durableagents.contrib.notifications.models import Delivery, Device
from durableagents.contrib.notifications.preferences import PreferenceBody
from durableagents.outgoing.encryption import encrypt as encrypt_text
from ledger.actors import Actor
from ledger.errors import InvalidInput
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from tests.contrib.accounts.conftest import PASSWORD, code_of, secret_on
from tests.contrib.notifications.mail_server import allow
from tests.contrib.notifications.push_service import Browser, Service, claims_of, push_service
from tests.contrib.notifications.test_notices import soon
from tests.integration.approvals.setup import asked, say, somebody
from tests.integration.runs.stage import Stage, now
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
FINANCE = "approver_finance"


@pytest.fixture
def service(
    request: pytest.FixtureRequest, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """A push service on this machine, allowed by the installation, and the installation's key."""
    request.getfixturevalue("stage" if "stage" in request.fixturenames else "db")
    allow(settings, "127.0.0.0/8")
    use_key(settings, tmp_path / "push.pem")
    with push_service(tmp_path) as (found, certificate):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        delivering._pauses.clear()
        yield found
    delivering._pauses.clear()


def use_key(settings: Any, path: Path) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"push_key": path, "push_contact": "mailto:agents@example.org"}
    )
    web_push.create_key()


def subscribed(by: Actor, browser: Browser, name: str = "Chrome on Android") -> Device:
    return devices.subscribe(DeviceBody(**browser.body), name, by=by)[0]


def deliver() -> None:
    addressing.address_all()
    delivering.deliver(delivering.BY_PUSH)


def pushed() -> Delivery:
    return Delivery.objects.get(by="push")


def test_a_device_shows_only_where_and_until_when_it_waits(stage: Stage, tools: Toolbox, service: Service) -> None:
    fiona, phone = somebody("fiona", FINANCE), service.device()
    subscribed(fiona, phone)
    approval = asked(stage, tools)
    deliver()
    (found,) = service.told(phone)
    assert found["title"] == "To decide: Pay" and found["url"] == f"/inbox/{approval.pk}"
    assert found["body"].startswith("Queue: finance_po\nUntil: ") and set(found) == {"title", "body", "url", "tag"}
    assert "5,000" not in str(found) and "po" not in found["title"]
    ((_, headers, body),) = service.came
    assert headers["Content-Encoding"] == "aes128gcm" and headers["TTL"] == "14400" and headers["Urgency"] == "high"
    row = pushed()
    assert (row.state, headers["Topic"]) == ("sent", row.message.hex if row.message else "")
    assert found["tag"] == headers["Topic"]
    claims, key = claims_of(headers["Authorization"])
    assert (
        claims["aud"] == service.url
        and claims["sub"] == "mailto:agents@example.org"
        and key == web_push.read_key().public
    )
    assert 0 < claims["exp"] - now().timestamp() < 24 * 3600 and b"Pay" not in body
    device = Device.objects.get()
    assert device.told_at is not None and device.is_authentic


def test_all_messages_are_of_one_length(stage: Stage, tools: Toolbox, service: Service) -> None:
    phone = service.device()
    subscribed(somebody("fiona", FINANCE), phone)
    preferences.request_test(by=Actor("user", "fiona", person=User.objects.get(username="fiona").pk))
    asked(stage, tools)
    deliver()
    assert len({len(body) for _, _, body in service.came}) == 1 and len(service.came) == 2


@pytest.mark.parametrize("text", ["\N{PARTY POPPER}" * 200, "\x07" * 200, '"' * 200, "\ud800" * 200], ids=range(4))
def test_the_longest_is_of_the_same_length_and_no_longer_than_a_push_service_takes(service: Service, text: str) -> None:
    fiona, phone = somebody("fiona", FINANCE), service.device()
    device = subscribed(fiona, phone)
    page = f"https://ours.example/inbox/{UUID(int=1)}"
    for one in (texts.Text("To decide: Pay", [], page), texts.Text(text, [("What", text), ("Queue", text)], page)):
        assert devices.send(device, texts.as_push([one]), message=uuid4()).state == "sent"
    short, long = (len(body) for _, _, body in service.came)
    assert short == long <= 4096
    assert len(service.told(phone)[1]["title"]) == len(service.told(phone)[1]["body"]) == texts.MAX_LENGTH


def test_each_device_of_somebody_is_told_and_nobody_elses(stage: Stage, tools: Toolbox, service: Service) -> None:
    fiona, olga = somebody("fiona", FINANCE), somebody("olga", "operator")
    phone, laptop, other = service.device(), service.device(), service.device()
    for by, browser in ((fiona, phone), (fiona, laptop), (olga, other)):
        subscribed(by, browser)
    asked(stage, tools)
    deliver()
    assert len(service.told(phone)) == len(service.told(laptop)) == 1 and service.told(other) == []
    deliver()
    assert len(service.came) == 2, "a fact is told once"


def test_what_was_decided_or_is_not_theirs_is_not_told(stage: Stage, tools: Toolbox, service: Service) -> None:
    fiona, frank = somebody("fiona", FINANCE), somebody("frank", FINANCE)
    phone, other = service.device(), service.device()
    subscribed(fiona, phone)
    subscribed(frank, other)
    approval = asked(stage, tools)
    addressing.address_all()
    User.objects.get(username="frank").groups.clear()
    delivering.deliver(delivering.BY_PUSH)
    assert len(service.told(phone)) == 1 and service.told(other) == []
    say(approval, fiona)
    assert "may no longer act" in Delivery.objects.get(by="push", state="needless").note


def test_quiet_hours_and_digests_are_for_devices_too(stage: Stage, tools: Toolbox, service: Service) -> None:
    fiona, phone = somebody("fiona", FINANCE), service.device()
    subscribed(fiona, phone)
    preferences.save_settings(PreferenceBody(digest="hourly"), by=fiona)
    asked(stage, tools)
    preferences.request_test(by=fiona)
    deliver()
    assert service.came == [] and all(each.is_grouped for each in Delivery.objects.filter(by="push"))
    soon()
    deliver()
    (found,) = service.told(phone)
    assert found["title"].startswith("2 notifications") and found["url"] == "/inbox"
    assert {each.state for each in Delivery.objects.filter(by="push")} == {"sent"}
    begins = (now() - timedelta(hours=1)).time()
    ends = (now() + timedelta(hours=1)).time()
    body = PreferenceBody(quiet_from=f"{begins:%H:%M}", quiet_until=f"{ends:%H:%M}")
    preferences.save_settings(body, by=fiona)
    Delivery.objects.all().delete()
    from durableagents.contrib.notifications.models import Notice

    Notice.objects.all().delete()
    preferences.request_test(by=fiona)
    deliver()
    assert pushed().state == "waiting" and pushed().due_at > now() + timedelta(minutes=50)
    assert isinstance(begins, time)


def test_failures_are_retried_and_a_gone_device_ends(stage: Stage, tools: Toolbox, service: Service) -> None:
    phone, laptop = service.device(), service.device()
    fiona = somebody("fiona", FINANCE)
    device = subscribed(fiona, phone)
    asked(stage, tools)
    service.answers = [(503, {}), (429, {"Retry-After": "700"}), (410, {})]
    deliver()
    row = pushed()
    assert row.state == "waiting" and row.note == "it answered 503" and len(service.came) == 1
    soon()
    deliver()
    row.refresh_from_db()
    assert 690 < (row.due_at - now()).total_seconds() <= 700
    soon()
    deliver()
    row.refresh_from_db()
    device.refresh_from_db()
    assert row.state == "dead" and row.note == "it answered 410" and [t["outcome"] for t in row.tries][-1] == "refused"
    assert device.ended_at is not None and "no longer knows the device" in device.why
    assert len({headers["Topic"] for _, headers, _ in service.came}) == 1  # one message, however often it is sent
    assert {entry["tag"] for entry in service.told(phone)} == {row.message.hex if row.message else ""}
    subscribed(fiona, laptop)
    preferences.request_test(by=fiona)
    deliver()
    assert service.told(laptop) and len(service.came) == 4


@pytest.mark.parametrize("status", [404, 410])
def test_two_answers_mean_that_there_is_nobody(service: Service, status: int) -> None:
    fiona = somebody("fiona", FINANCE)
    device = subscribed(fiona, service.device())
    service.answers = [(status, {})]
    preferences.request_test(by=fiona)
    deliver()
    device.refresh_from_db()
    assert device.ended_at is not None and devices.devices_of(fiona.person or 0) == []


def test_another_installation_key_ends_devices_by_name(service: Service, settings: Any, tmp_path: Path) -> None:
    fiona = somebody("fiona", FINANCE)
    device = subscribed(fiona, service.device())
    use_key(settings, tmp_path / "other.pem")
    preferences.request_test(by=fiona)
    deliver()
    device.refresh_from_db()
    assert service.came == [] and "under another key" in pushed().note and device.ended_at is not None


@pytest.mark.parametrize("endpoint", ["http://push.example.org/x", "https://push.example.org/x#y", "x"])
def test_what_is_no_https_address_is_no_device(service: Service, endpoint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        subscribed(somebody("fiona", FINANCE), Browser(endpoint))
    assert refused.value.extra["errors"][0]["field"] == "endpoint" and not Device.objects.exists()


def test_an_address_inside_is_sent_nothing(service: Service, settings: Any) -> None:
    """See test_chats.py."""
    allow(settings)
    fiona = somebody("fiona", FINANCE)
    subscribed(fiona, Browser("https://127.0.0.1/x"))
    preferences.request_test(by=fiona)
    deliver()
    assert pushed().state == "dead" and "not on the public internet" in pushed().note


@pytest.mark.parametrize(
    "wrong", [{"p256dh": "x"}, {"p256dh": "A" * 87}, {"p256dh": "B" + "_" * 86}, {"auth": "AAAA"}, {"auth": "\u00e4"}]
)
def test_keys_that_are_none_are_no_device(service: Service, wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        devices.subscribe(DeviceBody(**service.device().body | wrong), "x", by=somebody("fiona", FINANCE))
    assert not Device.objects.exists()


def test_a_forged_device_is_told_nothing(stage: Stage, tools: Toolbox, service: Service) -> None:
    fiona, eve = somebody("fiona", FINANCE), service.device()
    device, stolen = subscribed(fiona, service.device()), service.device()
    for n, change in enumerate(
        ({"address": encrypt_text(json.dumps([*eve.body.values()]))}, {"person": fiona.person}, {"code": None})
    ):
        row = Device.objects.get(pk=device.pk)
        row.pk, row._state.adding, row.digest = None, True, bytes([n]) * 32
        row.made_at += timedelta(seconds=n)
        for name, value in change.items():
            setattr(row, name, value)
        row.save(force_insert=True)
    asked(stage, tools)
    deliver()
    assert len(service.came) == 1 and service.told(eve) == service.told(stolen) == []
    notes = {each.note for each in Delivery.objects.filter(by="push", state="needless")}
    assert notes == {"the device was not written by this installation"}
    found = [problem for each in verify_registers() for problem in each.problems]
    assert len(found) == 3 and all(problem.startswith("device ") for problem in found)


def test_its_address_is_kept_secret(
    stage: Stage, tools: Toolbox, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    fiona, phone = somebody("fiona", FINANCE), service.device("secret-part")
    device = subscribed(fiona, phone)
    service.answers = [(410, {})]
    asked(stage, tools)
    deliver()
    record, row = ActRecord.objects.get(action="device"), pushed()
    whole = f"{record.before}{record.after}{record.subject}{device.address}{device.service}{row.note}{row.tries}"
    assert "secret-part" not in whole + caplog.text and record.after["service"] == "localhost"


__all__ = ["service"]


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
    assert "Chrome on Android" in text and "by localhost" in text and "this device" in text
    assert "secret-part" not in text and web_push.read_key().public in text
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
    assert Device.objects.get().why == "someone signed out there"


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
        code = code_of(secret, factors.now_seconds())
        assert page.post("/account/second-factor", {"code": code}).status_code == 200
    live = Device.objects.filter(ended_at__isnull=True).values_list("name", flat=True)
    assert sorted(live) == ["Chrome on Android", "Safari on iPhone"]


def test_a_command_makes_the_key_once(settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "push.pem"
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"push_key": path})
    call_command("push_key")
    first = capsys.readouterr().out
    assert path.stat().st_mode & 0o777 == 0o600 and web_push.read_key().public in first and "PRIVATE" not in first
    call_command("push_key")
    assert web_push.read_key().public in capsys.readouterr().out and "PRIVATE KEY" in path.read_text()
