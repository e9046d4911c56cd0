"""Passkeys: set up after fresh authentication, used to sign in, and refused if one part is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives.asymmetric import ec
from django.core import signing
from django.db import connections
from django.test import Client

from durableagents.contrib.accounts import factors, passkeys, signed_in, webauthn
from durableagents.models import Attempts
from ledger.models import AccountRecord
from ledger.web.roles import PROVED_BY, STRENGTH
from tests.contrib.accounts.authenticator import Device, cose
from tests.contrib.accounts.conftest import PASSWORD, Someone, codes_on, grow_old
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db


def shown_on(page: Any) -> tuple[str, dict[str, Any]]:
    text = page.content.decode()
    token, options = (re.findall(rf'data-{name}="(.*?)"', text, re.DOTALL)[0] for name in ("token", "options"))
    return unescape(token), json.loads(unescape(options))


def to_make(who: Someone, name: str = "my phone") -> tuple[str, dict[str, Any]]:
    page = who.client.post("/account/passkeys/new", {"name": name})
    assert page.status_code == 200, page.content.decode()
    return shown_on(page)


def keep(who: Someone, token: str, answer: str, name: str = "my phone") -> Any:
    return who.client.post("/account/passkeys", {"name": name, "challenge": token, "answer": answer})


def set_up(who: Someone, device: Device, name: str = "my phone") -> Any:
    token, options = to_make(who, name)
    answer = keep(who, token, device.make(options), name)
    assert answer.status_code in (200, 302), answer.content.decode()
    return answer


def to_sign_in(client: Client) -> tuple[str, dict[str, Any]]:
    body = client.get("/login/passkey").json()
    return body["token"], json.loads(body["options"])


def come_in(client: Client, token: str, answer: str, next_: str = "/account") -> Any:
    return client.post("/login/passkey", {"proof_challenge": token, "proof_passkey": answer, "next": next_})


def sign_in(client: Client, device: Device, **lies: Any) -> Any:
    token, options = to_sign_in(client)
    return come_in(client, token, device.sign(options, **lies))


@pytest.fixture
def device() -> Device:
    where = webauthn.site()
    return Device(origin=where.origin, rp_id=where.rp_id)


@pytest.fixture
def with_passkey(olga: Someone, device: Device) -> Someone:
    olga.sign_in()
    set_up(olga, device)
    olga.client = Client()
    return olga


# --- setting one up ---


def test_who_has_just_shown_who_they_are_sets_one_up_and_gets_recovery_codes_with_the_first(
    olga: Someone, device: Device
) -> None:
    olga.sign_in()
    other = olga.elsewhere()
    other.sign_in()
    token, options = to_make(olga)
    assert options["authenticatorSelection"] == {
        "residentKey": "required",
        "requireResidentKey": True,
        "userVerification": "required",
    }
    assert options["rp"]["id"] == device.rp_id and "olga" not in options["user"]["id"]
    page = keep(olga, token, device.make(options))
    assert len(codes_on(page)) == 10 and "my phone" in page.content.decode()
    assert (
        olga.client.session[STRENGTH] == "session+passkey" and not other.is_in()
    )  # the other session rests on the password alone
    (added, codes) = AccountRecord.objects.filter(action="factor_added").order_by("id")
    assert added.by == "user:olga" and added.after["name"] == "my phone" and added.after["factor"] == "webauthn"
    assert added.after["key"] == passkeys.key_digest(cose(device.key)) and codes.after == {"factor": "recovery_codes"}
    second = Device(device.origin, device.rp_id)
    assert set_up(olga, second, "my laptop").status_code == 302  # no further codes, and the old ones stay valid
    assert [one.name for one in passkeys.of_account(olga.user)] == ["my phone", "my laptop"]
    assert factors.of_account(olga.user)[1] == 10


def test_who_showed_it_long_ago_is_asked_before_anything_is_made_renamed_or_taken_away(
    olga: Someone, device: Device
) -> None:
    olga.sign_in()
    set_up(olga, device)
    (one,) = passkeys.of_account(olga.user)
    for path in ("/account/passkeys/new", f"/account/passkeys/{one.pk}/names", f"/account/passkeys/{one.pk}/removals"):
        grow_old(olga.client)
        response = olga.client.post(path, {"name": "other"})
        assert response.status_code == 403 and "Confirm it" in response.content.decode(), path
    assert [one.name for one in passkeys.of_account(olga.user)] == ["my phone"]
    # and the passkey shows it
    token, options = shown_on(response)
    assert [each["id"] for each in options["allowCredentials"]] == [device.id]
    proof = {"proof_challenge": token, "proof_passkey": device.sign(options)}
    assert olga.client.post(path, {"name": "other"} | proof).status_code == 302
    assert passkeys.of_account(olga.user) == [] and olga.client.session[PROVED_BY] == "passkey"


@pytest.mark.parametrize(
    ("lies", "why"),
    [
        ({"type": "webauthn.get"}, "Incorrect type"),
        ({"origin": "https://evil.example"}, "Invalid origin"),
        ({"challenge": "AAAA"}, "Wrong challenge"),
    ],
)
def test_what_a_device_made_for_something_else_is_not_taken(
    olga: Someone, device: Device, lies: dict[str, Any], why: str
) -> None:
    olga.sign_in()
    token, options = to_make(olga)
    refused = keep(olga, token, device.make(options, **lies))
    assert (
        refused.status_code == 422
        and why in refused.content.decode()
        and 'value="my phone"' in refused.content.decode()
    )
    assert not Authenticator.objects.exists()


def test_a_device_that_did_not_verify_who_holds_it_is_not_taken(olga: Someone, device: Device) -> None:
    olga.sign_in()
    token, options = to_make(olga)
    device.verifies = False
    refused = keep(olga, token, device.make(options))
    assert refused.status_code == 422 and "User verification required" in refused.content.decode()
    assert not Authenticator.objects.exists()


def test_one_that_is_of_another_site_of_weak_kind_or_nothing_at_all_is_not_taken(olga: Someone, device: Device) -> None:
    olga.sign_in()
    device.rp_id = "evil.example"
    token, options = to_make(olga)
    assert "RP ID" in keep(olga, token, device.make(options)).content.decode()
    half = json.dumps({"id": "x", "response": {"clientDataJSON": "e30", "attestationObject": "o2Nm"}})
    for rubbish in (
        "",
        "{}",
        "[]",
        "null",
        "x" * 40_000,
        "[" * 5_000,
        '{"response": {}}',
        '{"response": {"signature": 7}}',
        half,
    ):
        token, _ = to_make(olga)
        refused = keep(olga, token, rubbish)
        assert refused.status_code == 422, rubbish[:40]
    assert not Authenticator.objects.exists()


def test_a_challenge_is_good_once_for_its_person_and_for_five_minutes(
    olga: Someone, someone: Callable[..., Someone], device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve = someone("eve", "operator")
    olga.sign_in()
    eve.sign_in()
    token, options = to_make(olga)
    answer = device.make(options)
    assert keep(eve, token, answer).status_code == 422  # it belongs to someone else
    assert keep(olga, token, answer).status_code == 200
    assert keep(olga, token, answer).status_code == 409
    assert "already used" in keep(olga, token, answer).content.decode()
    late = Device(device.origin, device.rp_id)
    token, options = to_make(olga)
    now = webauthn.database_now()
    monkeypatch.setattr(webauthn, "database_now", lambda: now + timedelta(seconds=301))
    assert keep(olga, token, late.make(options)).status_code == 409
    monkeypatch.setattr(webauthn, "database_now", lambda: now - timedelta(seconds=60))
    assert keep(olga, token, late.make(options)).status_code == 409
    monkeypatch.undo()
    assert keep(olga, token + "x", late.make(options)).status_code == 422
    forged = signing.dumps(options, salt="another")
    assert keep(olga, forged, late.make(options)).status_code == 422
    assert keep(olga, token, late.make(options)).status_code == 302


def test_a_passkey_is_one_accounts_and_is_set_up_once(
    olga: Someone, someone: Callable[..., Someone], device: Device
) -> None:
    eve = someone("eve", "operator")
    olga.sign_in()
    set_up(olga, device)
    eve.sign_in()
    token, options = to_make(eve)
    refused = keep(eve, token, device.make(options))
    assert refused.status_code == 422 and "already set up" in refused.content.decode()
    assert passkeys.of_account(eve.user) == []
    token, options = to_make(olga)
    assert [each["id"] for each in options["excludeCredentials"]] == [device.id]


def test_names_are_people_s_own_and_seen(olga: Someone, device: Device) -> None:
    olga.sign_in()
    set_up(olga, device, "  my   phone ")
    (one,) = passkeys.of_account(olga.user)
    assert one.name == "my phone"
    for wrong in ("", " ", "x" * 61, "my\u202ephone", "nul\x00"):
        olga.client.post(f"/account/passkeys/{one.pk}/names", {"name": wrong})
        assert passkeys.of_account(olga.user)[0].name == "my phone", wrong
    olga.client.post(f"/account/passkeys/{one.pk}/names", {"name": "<b>phone</b>"})
    assert "&lt;b&gt;phone&lt;/b&gt;" in olga.client.get("/account/second-factor").content.decode()
    (changed,) = AccountRecord.objects.filter(action="factor_changed")
    assert (changed.before["name"], changed.after["name"]) == ("my phone", "<b>phone</b>")
    assert changed.after["is_other_secret"] is False


def test_another_s_passkey_is_renamed_and_taken_away_by_nobody(
    with_passkey: Someone, someone: Callable[..., Someone]
) -> None:
    eve = someone("eve", "operator")
    eve.sign_in()
    (one,) = passkeys.of_account(with_passkey.user)
    eve.client.post(f"/account/passkeys/{one.pk}/names", {"name": "mine"})
    assert eve.client.post(f"/account/passkeys/{one.pk}/removals").status_code == 404
    assert [each.name for each in passkeys.of_account(with_passkey.user)] == ["my phone"]


def test_twenty_are_enough(olga: Someone, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passkeys, "MOST", 1)
    olga.sign_in()
    token, options = to_make(olga)  # two pages at once
    other, others = to_make(olga)
    assert keep(olga, token, device.make(options)).status_code == 200
    assert keep(olga, other, Device(device.origin, device.rp_id).make(others)).status_code == 409
    refused = olga.client.post("/account/passkeys/new", {"name": "x"})
    assert refused.status_code == 409 and "at most 1 passkeys" in refused.content.decode()
    assert len(passkeys.of_account(olga.user)) == 1


# --- signing in ---


def test_a_passkey_signs_in_by_itself_and_the_session_says_so(with_passkey: Someone, device: Device) -> None:
    came = sign_in(with_passkey.client, device)
    assert came.status_code == 302 and came["Location"] == "/account"
    session = with_passkey.client.session
    assert (session[STRENGTH], session[PROVED_BY]) == ("session+passkey", "passkey") and with_passkey.is_in()
    (one,) = passkeys.of_account(with_passkey.user)
    assert one.last_used_at is not None and len(signed_in.places(with_passkey.user)) >= 1


def test_a_password_alone_opens_nothing_any_more(with_passkey: Someone, device: Device) -> None:
    assert with_passkey.sign_in()["Location"] == "/login/code" and not with_passkey.is_in()
    page = with_passkey.client.get("/login/code")
    assert "Recovery code" in page.content.decode()
    token, options = shown_on(page)
    proof = {"proof_challenge": token, "proof_passkey": device.sign(options)}
    assert with_passkey.client.post("/login/code", {"code": "", **proof}).status_code == 302
    assert with_passkey.client.session[STRENGTH] == "session+passkey" and with_passkey.is_in()


def test_a_lost_device_is_stood_in_for_by_a_recovery_code(olga: Someone, device: Device) -> None:
    olga.sign_in()
    codes = codes_on(set_up(olga, device))
    olga.client = Client()
    olga.sign_in()
    assert olga.give_code(codes[0]).status_code == 302 and olga.is_in()
    assert olga.client.session[STRENGTH] == "session+recovery_code"


@pytest.mark.parametrize(
    ("lies", "why"),
    [
        ({"type": "webauthn.create"}, "no assertion"),
        ({"origin": "https://evil.example"}, "made on a page of"),
        ({"origin": "http://localhost:8001"}, "made on a page of"),
        ({"origin": "https://localhost:8000"}, "made on a page of"),
        ({"origin": "http://127.0.0.1:8000"}, "made on a page of"),
        ({"origin": "http://localhost:8000.evil.example"}, "made on a page of"),
        ({"challenge": "AAAA"}, "challenge is not that"),
        ({"crossOrigin": True}, "made on a page of"),
        ({"device": {"verifies": False}}, "did not verify"),
        ({"device": {"is_touched": False}}, "did not verify"),
        ({"device": {"rp_id": "evil.example"}}, "a site other than"),
        ({"device": {"handle": "AAAA"}}, "another account"),
        ({"device": {"key": ec.generate_private_key(ec.SECP256R1())}}, "signature"),
    ],
    ids=(
        "made, another host, another port, another scheme, an address, a host below, another challenge, a frame, "
        "unverified, untouched, another site, another account, another key"
    ).split(", "),
)
def test_what_a_device_signed_elsewhere_or_unverified_opens_nothing(
    with_passkey: Someone, device: Device, lies: dict[str, Any], why: str
) -> None:
    for name, value in lies.get("device", {}).items():
        setattr(device, name, value)
    refused = sign_in(with_passkey.client, device, **{n: lie for n, lie in lies.items() if n != "device"})
    assert refused.status_code == 422 and why in refused.content.decode() and not with_passkey.is_in()


def test_an_answer_that_was_seen_is_good_for_nobody_else(with_passkey: Someone, device: Device) -> None:
    token, options = to_sign_in(with_passkey.client)
    answer = device.sign(options)
    assert come_in(with_passkey.client, token, answer).status_code == 302
    thief = Client()
    refused = come_in(thief, token, answer)
    assert refused.status_code == 409 and "sessionid" not in str(thief.cookies)
    # a challenge for fresh authentication is not valid for signing in
    grow_old(with_passkey.client)
    again, options = shown_on(with_passkey.client.post("/account/passkeys/new", {"name": "x"}))
    assert come_in(thief, again, device.sign(options)).status_code == 422


@pytest.mark.django_db(transaction=True)
def test_of_many_who_come_with_one_answer_at_once_one_is_let_in(olga: Someone, device: Device) -> None:
    olga.sign_in()
    set_up(olga, device)
    token, options = to_sign_in(Client())
    answer = device.sign(options)

    def one(_: int) -> int:
        try:
            return int(come_in(Client(), token, answer).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        items = list(pool.map(one, range(8)))
    assert sorted(items) == [302] + [409] * 7


@pytest.mark.parametrize(("counter", "counts"), [(1, True), (0, True), (0, False)], ids=["same", "back", "zero"])
def test_a_device_that_counts_back_is_a_copy(olga: Someone, device: Device, counter: int, counts: bool) -> None:
    device.counts = True
    olga.sign_in()
    set_up(olga, device)
    olga.client = Client()
    assert sign_in(olga.client, device).status_code == 302
    olga.client = Client()
    device.counter, device.counts = counter, counts
    refused = sign_in(olga.client, device)
    assert refused.status_code == 422 and "counted back" in refused.content.decode() and not olga.is_in()


def test_a_closed_account_and_a_passkey_that_is_gone_come_in_no_more(with_passkey: Someone, device: Device) -> None:
    with_passkey.user.is_active = False
    with_passkey.user.save()
    assert sign_in(with_passkey.client, device).status_code == 422
    with_passkey.user.is_active = True
    with_passkey.user.save()
    Authenticator.objects.filter(type="webauthn").delete()
    assert sign_in(with_passkey.client, device).status_code == 422 and not with_passkey.is_in()


def test_who_sends_rubbish_is_told_so_and_slowed_down(db: None) -> None:
    client = Client()
    status_codes = [
        come_in(client, "x", text).status_code for text in ("", "{}", "nonsense", '{"id": 7, "response": {}}')
    ]
    assert set(status_codes) == {422}
    status_codes = [come_in(client, "x", "{}").status_code for _ in range(40)]
    assert status_codes[-1] == 429
    Attempts.objects.all().delete()


@pytest.mark.parametrize("part", ["id", "userHandle", "type"])
def test_half_a_character_anywhere_in_an_answer_is_refused(with_passkey: Someone, device: Device, part: str) -> None:
    """It is valid JSON text that nothing else can encode."""
    token, options = to_sign_in(with_passkey.client)
    given = json.loads(device.sign(options))
    (given["response"] if part == "userHandle" else given)[part] = "\ud800"
    refused = come_in(with_passkey.client, token, json.dumps(given))
    assert refused.status_code == 422 and not with_passkey.is_in()


def test_an_origin_of_half_a_character_is_refused_wherever_it_is_told(with_passkey: Someone, device: Device) -> None:
    with_passkey.sign_in()
    token, options = shown_on(with_passkey.client.get("/login/code"))
    proof = {"proof_challenge": token, "proof_passkey": device.sign(options, origin="\ud800")}
    refused = with_passkey.client.post("/login/code", {"code": "", **proof})
    assert refused.status_code == 422 and "\\ud800" in refused.content.decode() and not with_passkey.is_in()


@pytest.mark.parametrize("data", [[], {}, {"sign_count": "x"}, {"sign_count": 2**70}, {"sign_count": None}])
def test_a_row_that_nobody_can_read_opens_nothing_and_takes_no_page_away(
    with_passkey: Someone, device: Device, data: Any
) -> None:
    (row,) = Authenticator.objects.filter(type="webauthn")
    rewrite(
        Authenticator.objects.filter(pk=row.pk), data={**row.data, **data} if data and isinstance(data, dict) else data
    )
    assert sign_in(with_passkey.client, device).status_code == 422 and not with_passkey.is_in()
    with_passkey.client.force_login(with_passkey.user)
    assert with_passkey.client.get("/account/second-factor").status_code == 200
    assert with_passkey.client.post(f"/account/passkeys/{row.pk}/names", {"name": "x"}).status_code == 302


# --- removing one ---


def test_with_the_last_factor_the_recovery_codes_go_and_a_device_s_app_keeps_them(
    olga: Someone, device: Device
) -> None:
    olga.sign_in()
    olga.set_up()
    set_up(olga, device)
    (one,) = passkeys.of_account(olga.user)
    olga.client.post(f"/account/passkeys/{one.pk}/removals")
    assert factors.of_account(olga.user)[1] == 10 and factors.has_factor(olga.user)
    set_up(olga, Device(device.origin, device.rp_id))
    olga.client.post("/account/second-factor/removals")
    assert factors.of_account(olga.user) == (None, 10) and factors.has_factor(olga.user)  # the passkey stays
    (one,) = passkeys.of_account(olga.user)
    olga.client.post(f"/account/passkeys/{one.pk}/removals")
    assert not Authenticator.objects.exists() and olga.client.session[STRENGTH] == "session"


def test_no_log_names_it(olga: Someone, device: Device, caplog: pytest.LogCaptureFixture) -> None:
    olga.sign_in()
    set_up(olga, device)
    sign_in(olga.client, device)
    assert PASSWORD not in caplog.text and device.id not in caplog.text and device.credential.hex() not in caplog.text
