"""A new installation: only someone with access to its machine can claim it, and its set-up page is accurate."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from approvals.queues import acts
from durableagents.contrib.accounts import first_admin
from durableagents.contrib.accounts.models import SetupLink
from durableagents.dev.launcher import Alone
from durableagents.env import load
from durableagents.identity.auth import issue_key
from durableagents.logs import LinksStaySecret
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.models import AccountRecord, ActRecord
from tests.contrib.accounts.people import PASSWORD, boss, boss_account, chosen, path_of
from tests.integration.console.conftest import Reader, text_of
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db


@pytest.fixture
def link(capsys: pytest.CaptureFixture[str]) -> str:
    call_command("setup_link")
    return path_of(capsys.readouterr().out.strip())


def claim(path: str, name: str = "root", **more: str) -> Any:
    return Client(REMOTE_ADDR="192.0.2.5").post(path, {"username": name, "email": "root@example.org", **chosen(**more)})


def admins() -> list[str]:
    return list(User.objects.filter(is_superuser=True).values_list("username", flat=True))


def test_the_first_administrator_comes_by_the_link_from_the_machine_and_is_on_record(link: str) -> None:
    browser = Client(REMOTE_ADDR="192.0.2.5")
    assert "Set up this installation" in text_of(browser.get(link))
    answer = browser.post(link, {"username": "root", "email": "root@example.org", **chosen()})
    assert answer.status_code == 302 and answer["Location"] == "/setup"
    assert "Set-up" in text_of(browser.get("/setup")), "the person who claims it is signed in"
    user = User.objects.get(username="root")
    assert user.is_superuser and user.is_staff and user.check_password(PASSWORD) and not user.groups.exists()
    record = AccountRecord.objects.get(action="account_added")
    assert (record.by, record.auth, record.address) == ("user:root", "token", "192.0.2.5")
    made, used = ActRecord.objects.filter(action__in=("setup_link", "setup")).order_by("id")
    assert (made.auth, used.by, used.person) == ("shell", "user:root", user.pk)


def test_a_claimed_installation_can_not_be_claimed_again(link: str) -> None:
    claim(link)
    for again in (Client().get(link), claim(link, "mallory")):
        assert again.status_code == 410 and "has been used" in text_of(again)
    assert admins() == ["root"]


@pytest.mark.parametrize("path", ["/setup/wrong", "/setup/" + "A" * 43, "/setup/%00", "/setup/" + "x" * 5000])
def test_without_the_right_link_nobody_learns_or_changes_anything(link: str, path: str) -> None:
    for answer in (Client().get(path), claim(path, "mallory")):
        assert answer.status_code == 404 and "leads nowhere" in text_of(answer)
    assert admins() == []


def test_before_there_is_any_link_no_token_fits() -> None:
    assert SetupLink.objects.count() == 0
    assert claim("/setup/anything").status_code == 404 and admins() == []


def test_a_link_ends_after_a_day_and_with_a_newer_one(link: str, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("setup_link")
    newer = path_of(capsys.readouterr().out.strip())
    assert claim(link).status_code == 404
    rewrite(SetupLink.objects.all(), expires_at=database_now() - timedelta(seconds=1))
    answer = claim(newer)
    assert answer.status_code == 410 and "expired" in text_of(answer) and admins() == []


def test_a_link_ends_with_the_first_administrator_however_that_one_came(link: str) -> None:
    call_command("createsuperuser", username="shelly", email="s@example.org", interactive=False)
    answer = claim(link, "mallory")
    assert answer.status_code == 410 and "has an administrator" in text_of(answer) and admins() == ["shelly"]
    assert AccountRecord.objects.filter(action="account_added", subject="user:shelly").exists(), "that is on record too"
    with pytest.raises(CommandError, match="already has an administrator"):
        call_command("setup_link")


def test_what_is_kept_of_a_link_can_not_be_used(link: str) -> None:
    row = SetupLink.objects.get()
    token = link.rpartition("/")[2]
    assert token.encode() not in bytes(row.token_hash) and bytes(row.token_hash).hex() not in link
    assert claim(f"/setup/{bytes(row.token_hash).hex()}").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_of_two_browsers_at_once_one_wins(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("setup_link")
    path = path_of(capsys.readouterr().out.strip())

    def one(name: str) -> int:
        try:
            return int(claim(path, name).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as several:
        answers = sorted(several.map(one, ["root1", "root2", "root3", "root4"]))
    assert answers.count(302) == 1 and set(answers) <= {302, 410, 503} and len(admins()) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"password": "short"}, "too short"),
        ({"again": "another one here"}, "don't match"),
        ({"name": "a b"}, "valid username"),
        ({"name": ""}, "required"),
        ({"name": "x" * 151}, "at most 150"),
        ({"name": "longusername99", "password": "longusername99"}, "too similar"),
        ({"name": "a\x00b"}, "Null characters"),
    ],
)
def test_what_does_not_fit_is_said_and_the_link_stays_good(link: str, given: dict[str, str], words: str) -> None:
    answer = claim(link, **given)
    assert answer.status_code == 422 and words in text_of(answer) and admins() == []
    assert claim(link).status_code == 302


def test_the_address_is_told_to_no_cache_no_other_site_and_no_log(link: str) -> None:
    answer = Client().get(link)
    assert answer["Cache-Control"] == "no-store" and answer["Referrer-Policy"] == "strict-origin"
    record = logging.LogRecord("x", logging.ERROR, "", 1, "Internal Server Error: %s", (link,), None)
    assert LinksStaySecret().filter(record) and record.getMessage() == "Internal Server Error: /setup/…"
    for value in ("/invited/AbC-_9?x=1", "GET /reset/MQ/cabc-9f HTTP/1.1", "'/reset/MQ/x'"):
        record = logging.LogRecord("x", logging.ERROR, "", 1, value, None, None)
        LinksStaySecret().filter(record)
        assert not {"AbC", "MQ", "9f"} & set(record.getMessage().replace("/", " ").split()), record.getMessage()
    from durableagents import settings as shipped

    assert shipped.LOGGING["handlers"]["stderr"]["filters"] == ["context", "no_links"]  # type: ignore[index]


# --- the page ---


def test_a_stranger_is_told_where_the_link_comes_from_and_only_while_there_is_nobody() -> None:
    answer = Client().get("/setup")
    assert answer.status_code == 200 and "manage.py setup_link" in text_of(answer)
    assert "Set up this installation" in text_of(Client().get("/login"))
    boss_account()
    assert Client().get("/setup")["Location"] == "/login?next=/setup"
    assert "Set up this installation" not in text_of(Client().get("/login"))


def test_the_check_list_reads_the_truth(reader: Callable[..., Reader]) -> None:
    root = boss()
    page = root.read("/setup")
    assert "Queue finance_po Nobody may decide" in page and "None. Programs need a key" in page
    assert "No operator" in page and "pass links on yourself" in page
    fin = reader("approver_finance", name="fin")
    reader("operator", name="op")
    assert fin.user is not None
    issue_key(fin.user, "laptop")
    page = root.read("/setup")
    assert "1 person decides, as Finance approver" in page and "1 key in force" in page
    assert "No operator" not in page
    shell = Actor("os", "root", auth="shell")
    acts.close("finance_po", by=shell, justification="It moves.")
    assert "Queue finance_po Closed: agents can't request approval here." in root.read("/setup")
    acts.open_again("finance_po", by=shell, justification="It has moved.")
    rewrite(User.objects.filter(username="fin"), is_active=False)
    assert "Queue finance_po Nobody may decide" in root.read("/setup"), "who may not sign in decides nothing"


# --- `up` without the demo ---


def test_up_without_the_demo_says_the_link_until_there_is_an_administrator() -> None:
    alone = Alone(load())
    alone.prepare()
    link = next(word for word in alone.greeting.split() if "/setup/" in word)
    assert first_admin.is_open() and claim(path_of(link)).status_code == 302
    again = Alone(load())
    again.prepare()
    assert "/setup/" not in again.greeting
    assert "this installation already has an administrator: sign in as them" in again.greeting
