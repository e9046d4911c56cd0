"""A person's own account: a new password, and the length of sessions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as installed
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from durableagents.contrib.accounts.models import SignedIn
from durableagents.identity.auth import issue_key
from durableagents.identity.session_rows import row_key
from durableagents.models import Attempts
from ledger.models import AccountRecord
from ledger.web.seeing.viewers import EVERYTHING
from runs.console.socket_watch import SIGNED_OUT, verdicts
from tests.cases import each_case
from tests.contrib.accounts.people import boss, meanwhile
from tests.integration.console.conftest import PASSWORD as OLD
from tests.integration.console.conftest import Reader, text_of
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db
NEW = "a staple nobody knows"


@pytest.fixture(autouse=True)
def _forgiving(db: None) -> None:
    Attempts.objects.all().delete()


def change(who: Reader, old: str = OLD, new: str = NEW, again: str | None = None, **more: str) -> Any:
    return who.post(
        "/account/password", old_password=old, new_password1=new, new_password2=new if again is None else again, **more
    )


def test_a_new_password_ends_every_other_session_and_is_on_record(ada: Reader) -> None:
    assert ada.user is not None
    elsewhere = Client()
    elsewhere.force_login(ada.user)
    assert change(ada)["Location"] == "/account/password"
    assert "Your password is changed." in ada.read("/account/password")
    assert elsewhere.get("/").status_code == 302
    assert User.objects.get(username="ada").check_password(NEW)
    record = AccountRecord.objects.filter(action="password_changed").latest("id")
    assert (record.by, record.subject, record.person) == ("user:ada", "user:ada", ada.user.pk)


@each_case("role", ["integrator", "approver_finance", "none"])
def test_everybody_has_the_page(reader: Callable[..., Reader], role: str) -> None:
    assert "Change password" in reader(role, name=f"some {role}").read("/account/password")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"old": "wrong"}, "incorrectly"),
        ({"new": "1234567890123456"}, "entirely numeric"),
        ({"new": "short"}, "too short"),
        ({"new": OLD}, "Give another one"),
        ({"again": "something else"}, "match"),
        ({"new": "password1234"}, "too common"),
        ({"new": "ada-ada-ada-ada", "again": ""}, "required"),
        ({"new": "auditorauditor"}, "repeats the same text"),
        ({"new": "12345-12345-" * 2}, "repeats the same text"),
        ({"new": "eeeeeeeeeeeeeeee"}, "repeats the same text"),
    ],
)
def test_what_is_wrong_is_said_at_the_field_and_nothing_changes(ada: Reader, given: dict[str, str], words: str) -> None:
    before = AccountRecord.objects.count()
    answer = change(ada, **given)
    assert answer.status_code == 422 and words in text_of(answer)
    assert User.objects.get(username="ada").check_password(OLD) and AccountRecord.objects.count() == before


def test_guessing_the_old_password_is_slowed_down(ada: Reader) -> None:
    for _ in range(5):
        assert change(ada, old="wrong").status_code == 422
    answer = change(ada)
    assert answer.status_code == 429 and int(answer["Retry-After"]) > 0
    assert User.objects.get(username="ada").check_password(OLD)


@pytest.mark.parametrize("end", [False, True])
def test_keys_end_with_the_password_where_that_is_asked_for(ada: Reader, end: bool) -> None:
    assert ada.user is not None
    token = issue_key(ada.user, "laptop")
    assert "Also revoke my 1 API key" in ada.read("/account/password")
    change(ada, **({"end_keys": "on"} if end else {}))
    assert Client().get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"}).status_code == (
        401 if end else 200
    )
    assert AccountRecord.objects.filter(action="key_revoked", by="user:ada").exists() is end


# --- an account that changes while its new password is hashed ---


@each_case("what", ["closed", "gone", "another password"])
def test_an_account_that_is_closed_gone_or_newly_opened_meanwhile_gets_no_password(
    ada: Reader, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    of, records = User.objects.filter(username="ada"), AccountRecord.objects.filter(action="password_changed")
    acts: dict[str, Callable[[], object]] = {
        "closed": lambda: rewrite(of, is_active=False),
        "gone": of.delete,
        "another password": lambda: rewrite(of, password=make_password("by a link of theirs")),
    }
    meanwhile(monkeypatch, NEW, acts[what])
    before = records.count()
    answer = change(ada)
    assert answer.status_code == 409 and "Nothing was changed" in text_of(answer)
    found = of.first()
    if found is None:
        assert what == "gone"
    else:
        assert found.is_active is (what != "closed")
        assert found.check_password("by a link of theirs" if what == "another password" else OLD)
    assert records.count() == before + (what == "another password")


NEW_PAIR = {"password1": NEW, "password2": NEW, "usable_password": "true"}


@each_case("usable", ["true", "false"])
def test_a_password_that_an_administrator_sets_or_takes_ends_every_session(ada: Reader, usable: str) -> None:
    assert ada.user is not None
    root = boss()
    form = NEW_PAIR if usable == "true" else {"usable_password": "false", "unset-password": "1"}
    assert root.post(f"/admin/auth/user/{ada.user.pk}/password/", **form).status_code == 302
    assert User.objects.get(username="ada").has_usable_password() is (usable == "true")
    assert not Session.objects.filter(pk=row_key(ada.client.session.session_key)).exists()
    assert not SignedIn.objects.filter(user=ada.user).exists() and ada.get("/account").status_code == 302


# --- how long sessions last ---


def clock(monkeypatch: pytest.MonkeyPatch, after: timedelta) -> None:
    at = timezone.now() + after
    monkeypatch.setattr("django.utils.timezone.now", lambda: at)


def seen(reader: Reader, **more: Any) -> bool:
    return bool(reader.client.get("/runs", **more).status_code == 200)


def test_half_an_hour_of_nothing_signs_out_pages_and_sockets_alike(
    ada: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ada.client.session.session_key
    clock(monkeypatch, timedelta(minutes=29))
    assert verdicts([key]) == {key: EVERYTHING}
    clock(monkeypatch, timedelta(minutes=2))
    assert verdicts([key]) == {key: SIGNED_OUT} and not seen(ada)


def test_doing_something_puts_the_end_off_but_not_beyond_twelve_hours(
    ada: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(28):
        clock(monkeypatch, timedelta(minutes=25))
        assert seen(ada)
    clock(monkeypatch, timedelta(minutes=21))
    assert not seen(ada)


def test_passwords_are_kept_by_argon2_and_older_hashes_still_open() -> None:
    from durableagents import settings as shipped

    assert shipped.PASSWORD_HASHERS[0] == "durableagents.identity.accounts.Argon2"
    assert "django.contrib.auth.hashers.PBKDF2PasswordHasher" in shipped.PASSWORD_HASHERS
    assert installed.SESSION_COOKIE_AGE == 12 * 3600
