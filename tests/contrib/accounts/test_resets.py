"""Resetting a password: who gets a link, what it does, and what it reveals to others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.core import mail as sent
from django.db import connection
from django.test import Client
from django.utils import timezone

from durableagents.contrib.accounts import mail
from durableagents.identity.auth import issue_key
from durableagents.models import ApiKey
from ledger.models import AccountRecord, ActRecord
from tests.cases import each_case
from tests.contrib.accounts.people import MAIL_FROM, MAIL_URL, PASSWORD, boss, chosen, mailed, path_of, reset_path
from tests.integration.console.conftest import text_of
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db
OLD = "correct horse battery"


def account(name: str = "ada", **more: Any) -> User:
    return User.objects.create_user(name, f"{name}@example.org", OLD, **more)


@pytest.fixture
def posts(settings: Any, transactional_db: None) -> None:
    """Set up mail; real transactions let the sending thread see committed rows."""
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"email_url": MAIL_URL, "email_from": MAIL_FROM})
    sent.outbox.clear()


def ask(who: str, address: str = "192.0.2.5") -> Any:
    return Client(REMOTE_ADDR=address).post("/reset", {"who": who})


def all_sent() -> list[Any]:
    mail.later(lambda: None).result(timeout=10)
    return list(sent.outbox)


def link_of(message: Any) -> str:
    return path_of(next(word for word in message.body.split() if "/reset/" in word))


def reset(path: str, **more: str) -> Any:
    return Client(REMOTE_ADDR="192.0.2.5").post(path, chosen(**more))


# --- by mail ---


@pytest.mark.parametrize("who", ["ada", "ada@example.org", "ADA@example.org", "  ada "])
def test_a_link_is_mailed_to_the_accounts_own_address_and_sets_a_password(posts: None, who: str) -> None:
    user = account()
    assert ask(who).status_code == 200
    (message,) = mailed()
    assert message.to == ["ada@example.org"] and "four hours" in message.body
    answer = reset(link_of(message))
    assert answer.status_code == 200 and "Password set." in text_of(answer)
    user.refresh_from_db()
    assert user.check_password(PASSWORD)
    record = AccountRecord.objects.get(action="password_changed")
    assert (record.by, record.auth, record.address) == ("user:ada", "token", "192.0.2.5")


def test_who_asks_can_not_see_whether_there_is_such_an_account(posts: None) -> None:
    account()
    account("closed", is_active=False)
    User.objects.create_user("bare", "bare@example.org", None)
    User.objects.create_user("mailless", "", OLD)
    bodies = set()
    for who in ("ada", "nobody", "closed", "bare", "mailless", "nobody@example.org"):
        answer = ask(who)
        bodies.add((answer.status_code, text_of(answer), str(sorted(answer.headers.items()))))
    assert len({(status, page) for status, page, _ in bodies}) == 1
    assert [message.to for message in all_sent()] == [["ada@example.org"]]


def test_asking_is_slowed_down_alike_for_anyone_who_is_known_and_unknown(posts: None) -> None:
    account()
    for who in ("ada", "nobody"):
        statuses = [ask(who, f"192.0.2.{n}").status_code for n in range(5)]
        assert statuses == [200, 200, 200, 429, 429], who
    assert len(all_sent()) == 3
    assert int(ask("ada")["Retry-After"]) > 0
    statuses = [ask(f"somebody{n}", "198.51.100.7").status_code for n in range(22)]
    assert statuses.count(429) == 2, "an address may try twenty names in an hour"


def test_a_mail_server_that_refuses_changes_no_answer_and_is_said_in_the_log(
    posts: None, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", 1, 1
    account()
    assert ask("ada").status_code == 200
    mail.later(lambda: None).result(timeout=10)
    assert "mail to ada@example.org was not sent" in caplog.text and "/reset/" not in caplog.text


def test_the_link_has_the_installations_own_address_whatever_host_was_asked(posts: None, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    account()
    Client(headers={"Host": "evil.example"}).post("/reset", {"who": "ada"})
    assert "evil.example" not in mailed()[0].body


# --- what a link does ---


def test_every_session_of_the_account_ends_and_its_keys_where_that_is_wished() -> None:
    user, elsewhere = account(), Client()
    elsewhere.force_login(user)
    token = issue_key(user, "laptop")
    assert elsewhere.get("/account").status_code == 200
    reset(reset_path(user))
    assert elsewhere.get("/account").status_code == 302 and ApiKey.objects.get().revoked_at is None
    answer = Client().post(reset_path(user), chosen("another staple here", end_keys="on"))
    assert "1 API key revoked" in text_of(answer)
    assert Client().get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_a_link_is_good_once_and_not_after_another_was_used() -> None:
    user = account()
    first, second = reset_path(user), reset_path(user)
    assert reset(first).status_code == 200
    for path in (first, second):
        assert reset(path, password="another staple here").status_code == 404
    user.refresh_from_db()
    assert user.check_password(PASSWORD)


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_sets_the_password() -> None:
    user = account()
    path = reset_path(user)

    def one(number: int) -> int:
        try:
            return int(reset(path, password=f"a staple nobody knows {number}").status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as several:
        answers = list(several.map(one, range(4)))
    user.refresh_from_db()
    assert answers.count(200) == 1 and set(answers) <= {200, 404, 503}
    assert user.check_password(f"a staple nobody knows {answers.index(200)}")


def test_a_link_ends_after_four_hours_with_a_sign_in_and_with_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    user = account()
    path = reset_path(user)
    rewrite(User.objects.filter(pk=user.pk), is_active=False)
    assert reset(path).status_code == 404
    rewrite(User.objects.filter(pk=user.pk), is_active=True)
    assert Client().get(path).status_code == 200
    later = timezone.now() + timedelta(hours=5)
    with monkeypatch.context() as patch:
        patch.setattr(PasswordResetTokenGenerator, "_now", lambda tokens: later.replace(tzinfo=None))
        assert Client().get(path).status_code == 404
    Client().force_login(user)
    assert reset(path).status_code == 404
    user.refresh_from_db()
    assert user.check_password(OLD)


@each_case(
    "path",
    [
        "/reset/MQ/x-y",
        "/reset/x/y",
        "/reset/%00/y",
        "/reset/é/y",
        "/reset/OTk5OTk5OTk5OTk5/y",
        "/reset/LTE/y",
        "/reset/MQ==/" + "z" * 3000,
    ],
)
def test_a_forged_link_opens_nothing(path: str) -> None:
    account()
    for answer in (Client().get(path), reset(path)):
        assert answer.status_code == 404 and "ada" not in text_of(answer)


def test_a_link_of_one_account_sets_no_password_of_another() -> None:
    ada, eve = account(), account("eve")
    whom, token = reset_path(eve).split("/")[2:4]
    other = reset_path(ada).split("/")[2]
    assert (
        reset(f"/reset/{other}/{token}").status_code == 404
        and Client().get(f"/reset/{whom}/{token}").status_code == 200
    )


def test_the_address_is_told_to_nobody() -> None:
    answer = Client().get(reset_path(account()))
    assert answer["Cache-Control"] == "no-store" and answer["Referrer-Policy"] == "strict-origin"


# --- by an administrator ---


def test_an_administrator_makes_a_link_with_a_reason_on_record() -> None:
    user, root = account(), boss()
    assert root.post(f"/people/{user.pk}/reset-links", justification=" ").status_code == 422
    answer = root.post(f"/people/{user.pk}/reset-links", justification="She lost her phone.")
    path = path_of(next(word for word in text_of(answer).split() if "/reset/" in word))
    assert answer["Cache-Control"] == "no-store" and reset(path).status_code == 200
    record = ActRecord.objects.get(action="reset_link")
    assert (record.by, record.subject, record.justification) == ("user:boss", "user:ada", "She lost her phone.")
    assert path.rpartition("/")[2] not in str(ActRecord.objects.values())


@each_case("what", ["closed", "no administrator", "gone"])
def test_a_link_ends_with_the_rights_of_anyone_who_made_it(what: str) -> None:
    """Otherwise someone locked out returns by a link made before."""
    user, root = account(), boss()
    answer = root.post(f"/people/{user.pk}/reset-links", justification="She lost her phone.")
    path = path_of(next(word for word in text_of(answer).split() if "/reset/" in word))
    assert Client().get(path).status_code == 200
    maker = User.objects.filter(username="boss")
    if what == "gone":
        maker.delete()
    else:
        maker.update(**{"is_active" if what == "closed" else "is_superuser": False})
    for answer in (Client().get(path), reset(path)):
        assert answer.status_code == 410 and "Ask another administrator" in text_of(answer)
    user.refresh_from_db()
    assert user.check_password(OLD)
