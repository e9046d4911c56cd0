"""Accounts by invitation: what a link gives, to whom, how often and how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail as sent
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from durableagents.contrib.accounts import invitations
from durableagents.contrib.accounts.models import Invitation
from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.setting import GuardsBody
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.models import AccountRecord, ActRecord
from tests.cases import each_case
from tests.contrib.accounts.people import (
    MAIL_FROM,
    MAIL_URL,
    PASSWORD,
    boss,
    boss_account,
    chosen,
    invite,
    mailed,
    path_of,
)
from tests.integration.console.conftest import text_of
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db
FORM = {
    "username": "ada",
    "email": "ada@example.org",
    "roles": ["approver_finance"],
    "days": "7",
    "justification": "She joins us.",
}


def link_in(answer: Any) -> str:
    assert answer.status_code == 200, text_of(answer)
    return path_of(next(word for word in text_of(answer).split() if "/invited/" in word))


def accept(path: str, **more: str) -> Any:
    return Client(REMOTE_ADDR="192.0.2.5").post(path, chosen(**more))


def test_the_invited_chooses_a_password_and_is_signed_in_with_the_roles_that_were_said() -> None:
    path = link_in(boss().post("/people/invitations", **FORM))
    ada = Client(REMOTE_ADDR="192.0.2.5")
    page = text_of(ada.get(path))
    assert "ada@example.org" in page and "Finance approver" in page
    answer = ada.post(path, chosen())
    assert answer.status_code == 302 and "Inbox" in text_of(ada.get("/inbox"))
    user = User.objects.get(username="ada")
    assert user.check_password(PASSWORD) and not user.is_staff and not user.is_superuser
    assert [group.name for group in user.groups.all()] == ["approver_finance"]


def test_who_invited_and_who_accepted_is_on_record() -> None:
    accept(link_in(boss().post("/people/invitations", **FORM)))
    user = User.objects.get(username="ada")
    question, taken = ActRecord.objects.filter(action__startswith="invit").order_by("id")
    assert (question.action, question.by, question.justification, question.subject) == (
        "invite",
        "user:boss",
        "She joins us.",
        "user:ada",
    )
    assert question.after["roles"] == ["approver_finance"] and question.role == "admin"
    assert (taken.action, taken.by, taken.auth, taken.person) == ("invitation_accept", "user:ada", "token", user.pk)
    assert taken.after["invited_by"] == "user:boss"
    given = AccountRecord.objects.get(action="role_given", subject_person=user.pk)
    assert (given.by, given.auth, given.address) == ("user:ada", "token", "192.0.2.5")
    listed = text_of(Client().get("/audit")) or ""
    assert "user:ada" not in listed, "nobody reads it without signing in"


def test_a_link_is_good_once() -> None:
    _, path = invite()
    assert accept(path).status_code == 302
    for again in (Client().get(path), accept(path, password="another staple here")):
        assert again.status_code == 410 and "has been used" in text_of(again)
    assert User.objects.get(username="ada").check_password(PASSWORD)


def test_an_expired_link_opens_nothing() -> None:
    row, path = invite()
    assert timedelta(days=6, hours=23) < row.expires_at - row.made_at <= timedelta(days=7)
    rewrite(Invitation.objects.all(), expires_at=database_now() - timedelta(seconds=1))
    assert "expired" in text_of(accept(path)) and not User.objects.filter(username="ada").exists()
    assert "expired" in boss().read("/people")


def test_a_revoked_link_opens_nothing_and_is_revoked_once() -> None:
    row, path = invite()
    root = boss()
    assert root.post(f"/people/invitations/{row.pk}/revocations", justification="").status_code == 422
    assert Client().get(path).status_code == 200, "without a reason nothing is changed"
    assert root.post(f"/people/invitations/{row.pk}/revocations", justification="She stays away.").status_code == 302
    assert "was revoked" in text_of(accept(path)) and not User.objects.filter(username="ada").exists()
    assert root.post(f"/people/invitations/{row.pk}/revocations", justification="Once more.").status_code == 409
    assert ActRecord.objects.filter(action="invitation_revoke").count() == 1
    assert root.post("/people/invitations/404/revocations", justification="Nobody.").status_code == 404


@each_case("change", [{"is_active": False}, {"is_superuser": False}])
def test_a_link_ends_with_the_account_of_anyone_who_made_it(change: dict[str, bool]) -> None:
    _, path = invite()
    rewrite(User.objects.filter(username="boss"), **change)
    assert "ended with the account" in text_of(accept(path)) and not User.objects.filter(username="ada").exists()


def test_an_account_that_was_closed_is_not_opened_by_its_link() -> None:
    _, path = invite()
    accept(path)
    rewrite(User.objects.filter(username="ada"), is_active=False)
    assert accept(path).status_code == 410 and not User.objects.get(username="ada").is_active


def test_names_that_look_like_others_are_refused_wherever_accounts_are_made() -> None:
    """Cyrillic а and о among Latin letters, an invisible letter, and wide letters."""
    admin = boss()
    for name in ("\u0430dmin", "b\u043ess", "boss\u115f", "boss\u3164"):
        invited = admin.post("/people/invitations", **FORM | {"username": name})
        assert invited.status_code == 422 and "must be unambiguous" in text_of(invited), ascii(name)
        renamed = admin.post(f"/admin/auth/user/{boss_account().pk}/change/", username=name)
        assert renamed.status_code == 200 and "must be unambiguous" in text_of(renamed), ascii(name)
        with pytest.raises(CommandError, match="must be unambiguous"):
            call_command("createsuperuser", interactive=False, username=name, email="")
    assert [*User.objects.values_list("username", flat=True)] == ["boss"]


def test_a_newer_invitation_ends_the_older_one_whatever_its_capitals() -> None:
    older, path = invite("ada")
    _, newer = invite("ADA")
    older.refresh_from_db()
    assert older.revoked_at is not None and "was revoked" in text_of(accept(path))
    assert ActRecord.objects.get(action="invitation_revoke").justification.startswith("Replaced by another invitation")
    assert accept(newer).status_code == 302 and [*User.objects.filter(username__iexact="ada")] == [
        User.objects.get(username="ADA")
    ]


@each_case("name", ["ada", "ADA"])
def test_a_name_that_was_taken_meanwhile_is_refused(name: str) -> None:
    _, path = invite()
    User.objects.create(username=name)
    answer = accept(path)
    assert answer.status_code == 409 and "is taken (case is ignored)" in text_of(answer)
    assert "ask the person who invited you for another link" in text_of(answer) and "choose another" not in text_of(
        answer
    )
    assert not User.objects.get(username=name).check_password(PASSWORD)
    assert Invitation.objects.get().accepted_at is None and not ActRecord.objects.filter(action="invitation_accept")


@pytest.mark.django_db(transaction=True)
def test_of_two_who_accept_at_once_one_wins() -> None:
    _, path = invite()

    def one(password: str) -> int:
        try:
            return int(accept(path, password=password).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as several:
        answers = sorted(several.map(one, [f"a staple nobody knows {n}" for n in range(4)]))
    assert answers.count(302) == 1 and set(answers) <= {302, 410, 503}
    assert User.objects.filter(username="ada").count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_who_invite_the_same_name_at_once_one_link_is_left() -> None:
    boss()

    def one(_: int) -> str:
        try:
            return invite()[1]
        except invitations.AlreadyInvited:
            return ""
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as several:
        paths = [path for path in several.map(one, range(3)) if path]
    assert [Client().get(path).status_code for path in paths].count(200) == 1


@each_case("path", ["/invited/wrong", "/invited/" + "B" * 43, "/invited/%00", "/invited/%F0%9F%92%A9"])
def test_a_stranger_learns_nothing(path: str) -> None:
    invite()
    for answer in (Client().get(path), accept(path)):
        page = text_of(answer)
        assert answer.status_code == 404 and "ada" not in page and "boss" not in page and "example.org" not in page


def test_a_wrong_link_looks_the_same_on_every_installation() -> None:
    before = Client().get("/invited/wrong").content
    invite()
    assert Client().get("/invited/wrong").content == before


def test_what_is_kept_is_a_digest_and_the_link_is_in_no_list_or_record() -> None:
    row, path = invite()
    token = path.rpartition("/")[2]
    assert token not in boss().get("/people").content.decode()
    assert token not in str(list(ActRecord.objects.values())) and token.encode() != bytes(row.token_hash)


def test_the_answer_with_the_link_is_kept_nowhere() -> None:
    answer = boss().post("/people/invitations", **FORM)
    assert answer["Cache-Control"] == "no-store" and "messages" not in answer.cookies
    value = Client().get(link_in(answer))
    assert value["Cache-Control"] == "no-store" and value["Referrer-Policy"] == "strict-origin"


@each_case(
    ("given", "words"),
    [
        ({"justification": ""}, "required"),
        ({"justification": "?"}, "needs a reason"),
        ({"roles": []}, "Choose a role"),
        ({"roles": ["wheel"]}, "not one of the available choices"),
        ({"email": "nobody"}, "valid email"),
        ({"username": "a b"}, "valid username"),
        ({"username": "BOSS"}, "is taken (case is ignored)"),
        ({"days": "31"}, "less than or equal to 30"),
        ({"days": "0"}, "greater than or equal to 1"),
        ({"username": "x" * 151}, "at most 150"),
        ({"email": "a@example.org\nBcc: b@example.org"}, "valid email"),
    ],
)
def test_what_does_not_fit_is_said_and_nobody_is_invited(given: dict[str, Any], words: str) -> None:
    answer = boss().post("/people/invitations", **{**FORM, **given})
    assert answer.status_code in (409, 422) and words in text_of(answer), text_of(answer)
    assert Invitation.objects.count() == 0


@each_case("given", [{"password": "short"}, {"again": "something else here"}, {"password": "ada@example.org"}])
def test_a_password_that_does_not_fit_is_said_and_the_link_stays_good(given: dict[str, str]) -> None:
    _, path = invite()
    assert accept(path, **given).status_code == 422 and not User.objects.filter(username="ada").exists()
    assert accept(path).status_code == 302


def test_hostile_names_are_inert() -> None:
    root = boss()
    evil = "<script>alert(1)</script>"
    answer = root.post("/people/invitations", **{**FORM, "username": evil, "justification": evil})
    assert answer.status_code == 422 and b"<script>alert" not in answer.content
    invite(justification=evil)
    assert b"<script>alert" not in root.get("/people").content


def test_an_invited_administrator_sets_up_and_decides_nothing() -> None:
    _, path = invite("root2", "auditor", is_admin=True)
    ann = Client()
    ann.post(path, chosen())
    assert ann.get("/setup").status_code == 200
    assert User.objects.get(username="root2").is_superuser


def test_an_invited_without_a_role_lands_where_they_may_read() -> None:
    """An invitation assigns no roles if two people must."""
    user = boss_account()
    User.objects.create_superuser("second")
    by = Actor("user", user.username, role="admin", auth="session", person=user.pk)
    guards.require(GuardsBody(families=["roles"], justification="two people"), by=by)
    path = link_in(boss().post("/people/invitations", **FORM | {"roles": []}))
    ann = Client()
    assert ann.post(path, chosen())["Location"] == "/account" and ann.get("/account").status_code == 200


def test_an_invitation_is_mailed_where_mail_is_set(settings: Any) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"email_url": MAIL_URL, "email_from": MAIL_FROM})
    answer = boss().post("/people/invitations", **FORM)
    (message,) = mailed()
    assert message.to == ["ada@example.org"] and link_in(answer) in message.body
    sent.outbox.clear()
