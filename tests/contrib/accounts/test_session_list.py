"""A person's sessions, ending them, and their programs' keys."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from durableagents.contrib.accounts import signed_in
from durableagents.contrib.accounts.models import SignedIn
from durableagents.identity import auth
from durableagents.identity.people import SessionEnded, SessionStore
from durableagents.identity.session_rows import row_key
from durableagents.models import ApiKey
from ledger.actors import Actor
from ledger.models import AccountRecord, ActRecord
from runs.console.socket_watch import SIGNED_OUT, verdicts
from tests.cases import each_case
from tests.contrib.accounts.people import boss, meanwhile
from tests.integration.console.conftest import PASSWORD as OLD
from tests.integration.console.conftest import Reader, text_of
from tests.integration.runs.stage import at_once

pytestmark = pytest.mark.django_db
NEW = "a staple nobody knows"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0"


def signed(who: Reader, **more: Any) -> Client:
    assert who.user is not None
    client = Client(**more)
    assert client.post("/login", {"username": who.user.username, "password": OLD}).status_code == 302
    return client


def is_in(client: Client) -> bool:
    return client.get("/account").status_code == 200


def places(who: Reader) -> list[signed_in.Place]:
    assert who.user is not None
    who.user.refresh_from_db()
    return signed_in.places(who.user, who.client.session.session_key)


def test_a_sign_in_is_listed_with_browser_address_and_time(ada: Reader) -> None:
    phone = signed(ada, REMOTE_ADDR="192.0.2.8", HTTP_USER_AGENT=FIREFOX)
    page = text_of(phone.get("/account"))
    assert "Firefox on Linux" in page and "192.0.2.8" in page and "this session" in page
    (place,) = [place for place in places(ada) if place.address == "192.0.2.8"]
    assert place.seen_at is not None and abs(timezone.now() - place.seen_at) < timedelta(minutes=2)
    assert abs(timezone.now() - place.since) < timedelta(minutes=1)


def test_one_session_is_ended_and_the_others_go_on(ada: Reader) -> None:
    phone, laptop = signed(ada, HTTP_USER_AGENT="x"), signed(ada, HTTP_USER_AGENT=FIREFOX)
    key = phone.session.session_key
    place = signed_in.digest_of(key).hex()
    assert laptop.post("/account/session-ends", {"session": place}).status_code == 302
    assert not is_in(phone) and is_in(laptop)
    assert verdicts([key]) == {key: SIGNED_OUT}, "open sockets notice too"
    assert laptop.post("/account/session-ends", {"session": place}).status_code == 404, "twice is once"


def test_all_others_are_ended_and_this_one_goes_on(ada: Reader) -> None:
    phone, laptop, other = signed(ada), signed(ada), boss()
    laptop.post("/account/session-ends", {"session": "others"})
    assert not is_in(phone) and is_in(laptop) and is_in(other.client)
    assert [
        place.is_this for place in signed_in.places(User.objects.get(username="ada"), laptop.session.session_key)
    ] == [True]


@each_case("place", ["", "zz", "00", "%00", "a" * 64, "é"])
def test_what_is_no_session_is_refused(ada: Reader, place: str) -> None:
    before = Session.objects.count()
    assert ada.post("/account/session-ends", session=place).status_code == 404
    assert Session.objects.count() == before


def test_nobody_ends_anothers_session_as_their_own(ada: Reader, operator: Reader) -> None:
    theirs = signed_in.digest_of(ada.client.session.session_key).hex()
    assert operator.post("/account/session-ends", session=theirs).status_code == 404 and is_in(ada.client)


def test_an_administrator_ends_anyones_with_a_reason_on_record(ada: Reader) -> None:
    phone, root = signed(ada), boss()
    assert ada.user is not None
    at = f"/people/{ada.user.pk}/session-ends"
    assert root.post(at, justification="").status_code == 422 and is_in(phone)
    assert root.post(at, justification="Her laptop was stolen.").status_code == 302
    assert not is_in(phone) and is_in(root.client)
    record = ActRecord.objects.get(action="session_end")
    assert (record.by, record.subject, record.justification) == ("user:boss", "user:ada", "Her laptop was stolen.")
    assert record.after["sessions_ended"] >= 1 and record.role == "admin"
    assert root.post("/people/404/session-ends", justification="Nobody.").status_code == 404


def test_a_session_of_somebody_else_is_not_ended_in_anothers_name(ada: Reader) -> None:
    root = boss()
    assert ada.user is not None and root.user is not None
    theirs = signed_in.digest_of(ada.client.session.session_key).hex()
    answer = root.post(f"/people/{root.user.pk}/session-ends", session=theirs, justification="By mistake.")
    assert answer.status_code == 404 and is_in(ada.client) and not ActRecord.objects.exists()


def test_a_session_that_is_ended_while_it_changes_its_password_ends(
    ada: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would live on under a new, unlisted key, and lock out the person who ended it."""
    laptop = signed(ada)
    assert ada.user is not None
    pk = ada.user.pk
    by = Actor("user", "boss", role="admin", auth="session")
    meanwhile(monkeypatch, NEW, lambda: signed_in.end_of_another(pk, "", by=by, justification="Her laptop was stolen."))
    form = {"old_password": OLD, "new_password1": NEW, "new_password2": NEW}
    answer = laptop.post("/account/password", form)
    assert answer.status_code == 401 and "Your session was ended" in text_of(answer)
    assert not is_in(laptop) and not Session.objects.exists() and not SignedIn.objects.exists()
    assert User.objects.get(pk=pk).check_password(OLD)


@pytest.mark.django_db(transaction=True)
def test_a_session_that_gets_another_key_at_the_moment_at_which_it_is_ended_ends(reader: Callable[..., Reader]) -> None:
    ada = reader("auditor", name="ada")
    assert ada.user is not None
    user = ada.user
    for _ in range(20):
        client = Client()
        client.force_login(user)
        session = SessionStore(client.session.session_key)
        assert session["_auth_user_id"] == str(user.pk), "it was read before"
        answers = at_once(session.cycle_key, lambda: signed_in.end_all(user.pk))
        assert answers[0] is None or isinstance(answers[0], SessionEnded), answers
        assert isinstance(answers[1], int) and not Session.objects.exists(), answers


def test_a_password_that_was_changed_elsewhere_leaves_no_session_in_the_list(ada: Reader) -> None:
    signed(ada)
    user = User.objects.get(username="ada")
    user.set_password(NEW)
    user.save()
    assert signed_in.places(user) == []


def test_an_ended_session_is_not_listed(ada: Reader) -> None:
    phone = signed(ada)
    Session.objects.filter(pk=row_key(phone.session.session_key)).update(
        expire_date=timezone.now() - timedelta(seconds=1)
    )
    assert all(place.id != signed_in.digest_of(phone.session.session_key).hex() for place in places(ada))


def test_a_hostile_browser_name_is_inert(ada: Reader) -> None:
    phone = signed(ada, HTTP_USER_AGENT="<script>alert(1)</script>\x1b[31m" + "x" * 5000)
    assert b"<script>alert" not in phone.get("/account").content
    assert max(len(row.browser) for row in SignedIn.objects.all()) <= 300


# --- a person's own keys ---


def allow(name: str = "ada") -> None:
    right = Permission.objects.get(codename="issue_own_key")
    User.objects.get(username=name).user_permissions.add(right)


def bearer(token: str) -> int:
    return int(Client().get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"}).status_code)


def test_ones_own_keys_are_listed_and_revoked_there_on_record(ada: Reader) -> None:
    assert ada.user is not None
    token = auth.issue_key(ada.user, "laptop")
    assert "laptop" in ada.read("/account") and token not in ada.get("/account").content.decode()
    key = ApiKey.objects.get()
    assert ada.post(f"/account/keys/{key.pk}/revocations").status_code == 302 and bearer(token) == 401
    assert AccountRecord.objects.get(action="key_revoked").by == "user:ada"
    assert ada.post(f"/account/keys/{key.pk}/revocations").status_code == 404
    assert AccountRecord.objects.filter(action="key_revoked").count() == 1


def test_nobody_revokes_anothers_key(ada: Reader, operator: Reader) -> None:
    assert ada.user is not None
    token = auth.issue_key(ada.user, "laptop")
    assert operator.post(f"/account/keys/{ApiKey.objects.get().pk}/revocations").status_code == 404
    assert bearer(token) == 200 and "laptop" not in operator.read("/account")


@each_case("role", ["integrator", "operator", "auditor"])
def test_nobody_makes_keys_of_their_own_unless_an_administrator_allows_it(
    reader: Callable[..., Reader], role: str
) -> None:
    somebody, root = reader(role, name="iris"), boss()
    assert somebody.user is not None
    assert somebody.post("/account/keys", name="laptop", days="30").status_code == 403 and not ApiKey.objects.exists()
    assert "Create key" not in somebody.read("/account")
    root.post(f"/people/{somebody.user.pk}/own-keys", may="yes", justification="She writes the importer.")
    answer = somebody.post("/account/keys", name="laptop", days="30")
    token = next(word for word in text_of(answer).split() if word.startswith("da_"))
    assert bearer(token) == 200 and answer["Cache-Control"] == "no-store" and "da_" not in str(answer.cookies)
    key = ApiKey.objects.get()
    assert key.user == somebody.user and timedelta(days=29) < key.expires_at - timezone.now() < timedelta(days=31)
    assert AccountRecord.objects.get(action="key_issued").by == "user:iris"
    act = ActRecord.objects.get(action="own_keys")
    assert (act.by, act.justification, act.after) == (
        "user:boss",
        "She writes the importer.",
        {"may_issue_own_keys": True},
    )
    assert AccountRecord.objects.get(action="permission_given", subject="user:iris").by == "user:boss"
    root.post(f"/people/{somebody.user.pk}/own-keys", may="no", justification="The importer is done.")
    assert somebody.post("/account/keys", name="another", days="30").status_code == 403
    assert ApiKey.objects.count() == 1


@each_case(
    ("name", "days"),
    [("", "3"), ("x", "366"), ("x", "0"), ("x", ""), ("x" * 101, "3"), ("\u202e", "3"), ("a\x00b", "3")],
)
def test_a_key_that_does_not_fit_is_not_made(ada: Reader, name: str, days: str) -> None:
    allow()
    assert ada.post("/account/keys", name=name, days=days).status_code == 422 and not ApiKey.objects.exists()


def test_there_is_a_bound_to_keys_of_ones_own(ada: Reader) -> None:
    allow()
    for number in range(auth.MAX_OWN):
        assert ada.post("/account/keys", name=f"k{number}", days="3").status_code == 200
    answer = ada.post("/account/keys", name="more", days="3")
    assert answer.status_code == 422 and "Revoke one first" in text_of(answer)
    assert ApiKey.objects.count() == auth.MAX_OWN
