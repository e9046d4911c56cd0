"""Sessions end with the proof they rest on; administrators authenticate again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, User
from django.db.models.signals import post_save

from durableagents.contrib.accounts import signed_in, urls
from durableagents.contrib.accounts.models import Invitation
from durableagents.contrib.accounts.views_people import AdminPage
from durableagents.models import ApiKey
from ledger.models import AccountRecord
from tests.contrib.accounts.conftest import PASSWORD, Someone, grow_old, secret_on

pytestmark = pytest.mark.django_db


def in_twice(one: Someone) -> Someone:
    """Sign in here and elsewhere with all that is asked; return the one elsewhere."""
    there = one.elsewhere()
    for place in (one, there):
        place.sign_in()
        if place.secret:
            place.give_code(place.code())
            place.clock.pass_steps()
        assert place.is_in()
    return there


# --- adding or removing a factor ends every other session ---------------------------------------------------------


def test_a_new_factor_ends_the_sessions_that_came_by_the_password_alone(olga: Someone) -> None:
    there = in_twice(olga)
    olga.set_up()
    assert olga.is_in() and not there.is_in()


def test_a_session_that_is_ended_while_it_sets_a_factor_up_ends_and_so_do_the_others(olga: Someone) -> None:
    there = in_twice(olga)
    olga.secret = secret_on(olga.client.get("/account/second-factor"))
    of_this = signed_in.digest_of(olga.client.session.session_key).hex()

    def ended(sender: type[Authenticator], instance: Authenticator, **_: Any) -> None:
        if instance.type == Authenticator.Type.RECOVERY_CODES:
            signed_in.end(olga.user.pk, of_this)

    post_save.connect(ended, sender=Authenticator)
    try:
        answer = olga.client.post("/account/second-factor", {"code": olga.code()})
    finally:
        post_save.disconnect(ended, sender=Authenticator)
    assert answer.status_code == 401 and "Your session was ended" in answer.content.decode()
    assert not olga.is_in() and not there.is_in() and signed_in.places(olga.user) == []


def test_a_factor_that_could_not_be_set_up_ends_no_session(olga: Someone) -> None:
    there = in_twice(olga)
    olga.client.get("/account/second-factor")
    assert olga.client.post("/account/second-factor", {"code": "000000"}).status_code == 422
    assert olga.is_in() and there.is_in()


def test_a_factor_that_is_taken_away_ends_the_sessions_that_came_by_it(with_factor: Someone) -> None:
    there = in_twice(with_factor)
    assert with_factor.client.post("/account/second-factor/removals").status_code == 302
    assert with_factor.is_in() and not there.is_in()


def test_nobody_elses_session_ends_with_it(someone: Callable[..., Someone], olga: Someone) -> None:
    other = someone("otto", "operator")
    other.sign_in()
    in_twice(olga)
    olga.set_up()
    assert other.is_in()


def test_a_session_that_waits_for_its_code_while_the_factor_goes_is_not_let_in_by_it(with_factor: Someone) -> None:
    """The password was given, the code not yet, and then there is none to ask for."""
    half = with_factor.elsewhere()
    half.sign_in()
    with_factor.sign_in()
    with_factor.give_code(with_factor.code())
    with_factor.clock.pass_steps()
    with_factor.client.post("/account/second-factor/removals")
    half.give_code(half.code())
    assert not half.is_in()


# --- administrators authenticate again before they change others' rights --------------------------------------------


@pytest.fixture
def boss(someone: Callable[..., Someone]) -> Someone:
    found = someone("root", is_staff=True, is_superuser=True)
    found.sign_in()
    grow_old(found.client)
    return found


def acts_on_people() -> list[str]:
    found = [
        "/" + str(pattern.pattern)
        for pattern in urls.console_urls
        if issubclass(view := getattr(pattern.callback, "view_class", object), AdminPage)
        and "post" in view.http_method_names
    ]
    assert len(found) >= 5, found
    return found


def test_every_act_on_people_asks_first(boss: Someone, olga: Someone) -> None:
    olga.sign_in()
    kept = AccountRecord.objects.count()
    invited = {"username": "new", "email": "new@example.com", "days": "3", "justification": "she starts on Monday"}
    for address in acts_on_people():
        path = address.replace("<int:user_id>", str(olga.user.pk)).replace("<int:invitation_id>", "1")
        answer = boss.client.post(path, {"may": "yes", **invited})
        assert answer.status_code == 403 and 'name="proof_password"' in answer.content.decode(), path
    assert AccountRecord.objects.count() == kept and not Invitation.objects.exists() and olga.is_in()


def test_an_act_on_people_is_done_with_the_proof_alongside_it(boss: Someone) -> None:
    invited = {
        "username": "new",
        "email": "new@example.com",
        "days": "3",
        "roles": ["operator"],
        "justification": "she starts on Monday",
    }
    assert boss.client.post("/people/invitations", {**invited, "proof_password": "wrong"}).status_code == 422
    assert not Invitation.objects.exists()
    answer = boss.client.post("/people/invitations", {**invited, "proof_password": PASSWORD})
    assert answer.status_code == 200 and Invitation.objects.get().username == "new"
    assert PASSWORD not in str(Invitation.objects.values())


def test_someone_who_is_no_administrator_is_refused_and_not_asked(boss: Someone, olga: Someone) -> None:
    olga.sign_in()
    grow_old(olga.client)
    for address in acts_on_people():
        path = address.replace("<int:user_id>", str(boss.user.pk)).replace("<int:invitation_id>", "1")
        answer = olga.client.post(path, {"proof_password": PASSWORD})
        assert answer.status_code == 403 and "proof_password" not in answer.content.decode(), path


@pytest.mark.parametrize(
    "path",
    [
        "auth/user/{pk}/change/",
        "auth/user/{pk}/delete/",
        "auth/user/{pk}/password/",
        "auth/user/add/",
        "auth/group/add/",
        "auth/user/",
    ],
)
def test_every_change_under_admin_asks_first(boss: Someone, olga: Someone, path: str) -> None:
    kept, before = AccountRecord.objects.count(), sorted(User.objects.values_list("username", "password", "is_active"))
    given = {
        "username": "olga",
        "is_superuser": "on",
        "post": "yes",
        "name": "approver_everything",
        "password1": "a staple nobody knows",
        "password2": "a staple nobody knows",
        "action": "delete_selected",
        "_selected_action": str(olga.user.pk),
    }
    answer = boss.client.post("/admin/" + path.format(pk=olga.user.pk), given)
    page = answer.content.decode()
    assert answer.status_code == 403 and 'name="proof_password"' in page and "staple" not in page
    assert AccountRecord.objects.count() == kept and not Group.objects.filter(name="approver_everything").exists()
    assert sorted(User.objects.values_list("username", "password", "is_active")) == before


def test_an_administrator_leaves_without_being_asked(boss: Someone) -> None:
    assert boss.client.post("/admin/logout/").status_code in (200, 302)
    assert not boss.is_in()


def test_a_proof_is_for_the_one_who_gave_it(boss: Someone, someone: Callable[..., Someone]) -> None:
    """The next person at the same browser authenticated, which proves nothing for the one before."""
    invited = {"username": "new", "email": "new@example.com", "days": "3", "justification": "she starts on Monday"}
    boss.client.post("/people/invitations", {**invited, "proof_password": PASSWORD})
    assert boss.client.session["proved_at"] > "2026-02"
    boss.client.post("/logout")
    second = someone("rita", is_staff=True, is_superuser=True)
    second.client = boss.client
    second.sign_in()
    grow_old(second.client)
    answer = second.client.post("/admin/durableagents/apikey/add/", {"user": second.user.pk, "name": "a"})
    assert answer.status_code == 403 and not ApiKey.objects.exists()
