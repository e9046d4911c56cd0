"""Risky actions need fresh authentication, and it loses nothing that was typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User

from durableagents.models import ApiKey
from ledger.models import AccountRecord
from tests.contrib.accounts.conftest import PASSWORD, Someone, grow_old
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db
ADD_KEY = "/admin/durableagents/apikey/add/"


@pytest.fixture
def boss(someone: Callable[..., Someone]) -> Someone:
    found = someone("root", is_staff=True, is_superuser=True)
    found.sign_in()
    return found


def kept(page: str) -> dict[str, str]:
    found = re.findall(r'<textarea name="([^"]+)" hidden>\n(.*?)</textarea>', page, re.S)
    return {unescape(name): unescape(value) for name, value in found}


def test_what_was_written_is_kept_and_goes_where_it_was_sent(boss: Someone) -> None:
    grow_old(boss.client)
    name = 'till & <b>"one"</b></textarea><script>alert(1)</script>'
    answer = boss.client.post(ADD_KEY, {"user": boss.user.pk, "name": name, "expires_at_0": "", "expires_at_1": ""})
    page = answer.content.decode()
    assert answer.status_code == 403 and not ApiKey.objects.exists() and "<script>alert" not in page
    assert f'action="{ADD_KEY}"' in page and kept(page)["name"] == name
    answer = boss.client.post(ADD_KEY, {**kept(page), "proof_password": PASSWORD})
    assert answer.status_code == 200 and "da_" in answer.content.decode()
    assert ApiKey.objects.get().name == name


def test_it_is_asked_once_in_a_while(boss: Someone) -> None:
    grow_old(boss.client)
    boss.client.post(ADD_KEY, {"user": boss.user.pk, "name": "a", "proof_password": PASSWORD})
    boss.client.post(ADD_KEY, {"user": boss.user.pk, "name": "b"})
    assert list(ApiKey.objects.order_by("id").values_list("name", flat=True)) == ["a", "b"]


def test_a_wrong_password_does_nothing_and_keeps_all(boss: Someone) -> None:
    grow_old(boss.client)
    for _ in range(5):
        answer = boss.client.post(ADD_KEY, {"user": boss.user.pk, "name": "a", "proof_password": "wrong"})
        assert answer.status_code == 422 and kept(answer.content.decode())["name"] == "a"
        assert "wrong" not in kept(answer.content.decode()).values()
    answer = boss.client.post(ADD_KEY, {"user": boss.user.pk, "name": "a", "proof_password": PASSWORD})
    assert answer.status_code == 429 and int(answer["Retry-After"]) > 0 and not ApiKey.objects.exists()


def test_another_session_is_asked_for_itself(boss: Someone) -> None:
    grow_old(boss.client)
    there = boss.elsewhere()
    there.sign_in()
    assert boss.client.post(ADD_KEY, {"user": boss.user.pk, "name": "a"}).status_code == 403
    assert there.client.post(ADD_KEY, {"user": boss.user.pk, "name": "a"}).status_code == 200


def test_a_proof_from_the_future_is_none(boss: Someone) -> None:
    session = boss.client.session
    session["proved_at"] = "2999-01-01T00:00:00+00:00"
    session.save()
    assert boss.client.post(ADD_KEY, {"user": boss.user.pk, "name": "a"}).status_code == 403


def test_someone_who_may_not_is_refused_before_they_are_asked(olga: Someone) -> None:
    olga.sign_in()
    grow_old(olga.client)
    answer = olga.client.post(ADD_KEY, {"user": 1, "name": "a"})
    assert answer.status_code == 302 and "Confirm it" not in answer.content.decode()


def test_someone_who_has_a_second_factor_is_asked_for_its_code_and_the_password_is_not_enough(
    with_factor: Someone,
) -> None:
    with_factor.sign_in()
    with_factor.give_code(with_factor.code())
    with_factor.clock.pass_steps()
    grow_old(with_factor.client)
    removal = "/account/second-factor/removals"
    for given in ({}, {"proof_password": PASSWORD}, {"proof_code": "000000"}):
        assert with_factor.client.post(removal, given).status_code in (403, 422)
    assert Authenticator.objects.exists()
    assert with_factor.client.post(removal, {"proof_code": with_factor.code()}).status_code == 302
    assert not Authenticator.objects.exists()
    record = AccountRecord.objects.filter(action="factor_removed").latest("id")
    assert (record.by, record.auth, record.before, record.after) == (
        "user:olga",
        "session+totp",
        {"factor": "totp"},
        {},
    )
    assert with_factor.client.session["signed_in_with"] == "session"


def test_a_new_password_needs_the_code_of_anyone_who_has_one_and_no_page_shows_what_was_typed(
    with_factor: Someone,
) -> None:
    with_factor.sign_in()
    with_factor.give_code(with_factor.code())
    with_factor.clock.pass_steps()
    grow_old(with_factor.client)
    new = {"old_password": PASSWORD, "new_password1": "a staple nobody knows", "new_password2": "a staple nobody knows"}
    answer = with_factor.client.post("/account/password", new)
    assert answer.status_code == 403 and "staple" not in answer.content.decode()
    assert with_factor.client.get("/account/password").status_code == 403
    answer = with_factor.client.post("/account/password", {"proof_code": with_factor.code()})
    assert answer["Location"] == "/account/password"
    assert with_factor.client.post("/account/password", new).status_code == 302
    assert User.objects.get(username="olga").check_password("a staple nobody knows")


def test_setting_a_factor_up_at_somebodys_open_screen_needs_their_password(olga: Someone) -> None:
    olga.sign_in()
    grow_old(olga.client)
    olga.client.get("/account/second-factor")
    assert olga.client.post("/account/second-factor", {"code": "123456"}).status_code == 403
    assert not Authenticator.objects.exists()


def test_someone_who_has_neither_is_told_to_sign_in_again(olga: Someone) -> None:
    olga.client.force_login(olga.user)
    olga.user.set_unusable_password()
    rewrite(User.objects.filter(pk=olga.user.pk), password=olga.user.password)
    olga.client.force_login(olga.user)
    grow_old(olga.client)
    answer = olga.client.post("/account/second-factor", {"code": "1", "proof_password": ""})
    assert answer.status_code == 403 and "Sign out, sign in again" in answer.content.decode()


def test_an_admin_takes_a_lost_factor_away_with_a_reason_that_is_on_record(with_factor: Someone, boss: Someone) -> None:
    factor = Authenticator.objects.get()
    path = f"/admin/mfa/authenticator/{factor.pk}/change/"
    page = boss.client.get(path).content.decode()
    assert "olga" in page and with_factor.secret not in page and factor.data["secret"] not in page
    for reason in ("", "x", "\x00"):
        assert boss.client.post(path, {"reason": reason}).status_code == 200 and Authenticator.objects.exists()
    answer = boss.client.post(path, {"reason": "Olga lost her phone; I called her back"}, follow=True)
    assert "removed." in answer.content.decode() and not Authenticator.objects.exists()
    record = AccountRecord.objects.filter(action="factor_removed").latest("id")
    assert (record.by, record.subject, record.after) == (
        "user:root",
        "user:olga",
        {"reason": "Olga lost her phone; I called her back"},
    )
    with_factor.sign_in()
    assert with_factor.is_in()
    audit = with_factor.client.get("/audit").content.decode()
    assert "I called her back" in audit


def test_an_admin_can_neither_add_nor_delete_a_factor_without_saying_why(with_factor: Someone, boss: Someone) -> None:
    pk = Authenticator.objects.get().pk
    assert boss.client.post("/admin/mfa/authenticator/add/", {}).status_code == 403
    assert boss.client.post(f"/admin/mfa/authenticator/{pk}/delete/", {"post": "yes"}).status_code == 403
    boss.client.post(
        "/admin/mfa/authenticator/", {"action": "delete_selected", "_selected_action": [pk], "post": "yes"}
    )
    assert Authenticator.objects.count() == 1
    for model in ("socialaccount/socialapp", "socialaccount/socialtoken", "account/emailaddress"):
        assert boss.client.get(f"/admin/{model}/").status_code == 404
