"""Single sign-on: a provider never decides alone whose account it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client

from durableagents.contrib.accounts.views_ways import LINKING
from durableagents.env import OidcProvider
from tests.contrib.accounts.conftest import PASSWORD, Someone, grow_old
from tests.contrib.accounts.idp import Idp
from tests.contrib.accounts.ways import known, out, sign_in, told
from tests.rewriting import rewrite

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("configure")]


# --- who gets in ------------------------------------------------------------------------------------------------------


def test_someone_who_is_linked_comes_in_and_goes_where_they_wanted(olga: Someone, idp: Idp) -> None:
    known(olga, idp)
    page = olga.client.get("/login", {"next": "/runs"}).content.decode()
    assert "Sign in with Corp" in page and "/login/sso/corp?next=%2Fruns" in page
    answer = sign_in(olga.client, "/runs")
    assert (answer.status_code, answer["Location"]) == (302, "/runs") and olga.is_in()
    assert olga.client.session["signed_in_with"] == "session+sso"


@pytest.mark.parametrize("next_", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_nobody_is_sent_off_the_site(olga: Someone, idp: Idp, next_: str) -> None:
    known(olga, idp)
    assert sign_in(olga.client, next_)["Location"] == "/"


def test_a_stranger_is_told_what_to_do_and_nothing_is_made(olga: Someone, idp: Idp) -> None:
    rewrite(User.objects.filter(pk=olga.user.pk), email="olga@example.org")
    idp.claims |= {"email": "olga@example.org", "email_verified": True, "preferred_username": "olga"}
    answer = sign_in(olga.client)
    assert answer.status_code == 403 and "No account here is linked" in answer.content.decode()
    assert User.objects.count() == 1 and not SocialAccount.objects.exists() and not olga.is_in()


@pytest.mark.parametrize(
    ("claims", "comes_in"),
    [
        ({"email": "olga@example.org", "email_verified": True}, True),
        ({"email": "OLGA@EXAMPLE.ORG", "email_verified": True}, True),
        ({"email": "olga@example.org", "email_verified": False}, False),
        ({"email": "olga@example.org", "email_verified": "true"}, False),
        ({"email": "olga@example.org"}, False),
        ({"email": "olga@elsewhere.org", "email_verified": True}, False),
        ({"email": "olga@sub.example.org", "email_verified": True}, False),
        ({"email": "olga@example.org ", "email_verified": True}, False),
        ({"email": ["olga@example.org"], "email_verified": True}, False),
        ({"email": "\x00@example.org", "email_verified": True}, False),
    ],
)
def test_an_address_counts_where_the_issuer_verified_it_and_may_speak_for_its_domain(
    olga: Someone, idp: Idp, configure: Callable[..., OidcProvider], claims: dict[str, Any], comes_in: bool
) -> None:
    rewrite(User.objects.filter(pk=olga.user.pk), email="olga@example.org")
    configure(email_domains=["example.org"])
    idp.claims |= claims
    assert (sign_in(olga.client).status_code == 302) is comes_in
    assert olga.is_in() is comes_in and SocialAccount.objects.exists() is comes_in
    if comes_in:
        ((_, by, subject, after),) = told("sign_in_linked")
        assert (by, subject, after) == (
            "system:oidc:corp",
            "user:olga",
            {"issuer": idp.issuer, "subject": "248289761001"},
        )


def test_addresses_that_only_the_database_takes_for_equal_find_no_account(
    someone: Callable[..., Someone], idp: Idp, configure: Callable[..., OidcProvider]
) -> None:
    """PostgreSQL's upper() makes `I` of `ı` and `S` of `ſ`; the account's own address may be the odd one too."""
    mike = someone("mike")
    configure(email_domains=["example.org"])
    for kept, claimed, reason in [
        ("mike.s@example.org", "mıke.s@example.org", "non-ASCII letters"),
        ("mike.s@example.org", "mike.ſ@example.org", "non-ASCII letters"),
        ("mıke.s@example.org", "mike.s@example.org", "No account here is linked"),
    ]:
        User.objects.filter(pk=mike.user.pk).update(email=kept)
        idp.claims |= {"email": claimed, "email_verified": True}
        answer = sign_in(mike.client)
        assert answer.status_code == 403 and reason in answer.content.decode(), (kept, claimed)
        assert not mike.is_in() and not SocialAccount.objects.exists()


def test_an_address_that_two_accounts_have_finds_neither(
    olga: Someone, someone: Callable[..., Someone], idp: Idp, configure: Callable[..., OidcProvider]
) -> None:
    someone("petra")
    rewrite(User.objects.all(), email="team@example.org")
    configure(email_domains=["example.org"])
    idp.claims |= {"email": "team@example.org", "email_verified": True}
    assert sign_in(olga.client).status_code == 403


def test_an_address_that_was_given_to_somebody_else_there_opens_nothing(
    olga: Someone, idp: Idp, configure: Callable[..., OidcProvider]
) -> None:
    known(olga, idp, "who had it before")
    rewrite(User.objects.filter(pk=olga.user.pk), email="olga@example.org")
    configure(email_domains=["example.org"])
    idp.claims |= {"email": "olga@example.org", "email_verified": True}
    answer = sign_in(olga.client)
    assert answer.status_code == 409 and not olga.is_in() and SocialAccount.objects.count() == 1


def test_the_same_subject_of_another_issuer_is_somebody_else(olga: Someone, idp: Idp) -> None:
    SocialAccount.objects.create(user=olga.user, provider="https://id.example.org", uid="248289761001")
    assert sign_in(olga.client).status_code == 403 and not olga.is_in()


def test_a_closed_account_stays_closed(olga: Someone, idp: Idp) -> None:
    known(olga, idp)
    rewrite(User.objects.all(), is_active=False)
    answer = sign_in(olga.client)
    assert answer.status_code == 403 and "closed" in answer.content.decode()


# --- newcomers and roles ----------------------------------------------------------------------------------------------


def test_a_newcomer_gets_an_account_without_a_role_where_a_setting_says_so(
    client: Client, idp: Idp, configure: Callable[..., OidcProvider]
) -> None:
    configure(creates_in="newcomers")
    idp.claims |= {"preferred_username": "nina"}
    assert sign_in(client).status_code == 302
    nina = User.objects.get(username="nina@corp")
    assert [group.name for group in nina.groups.all()] == ["newcomers"] and not nina.has_usable_password()
    assert not (nina.is_staff or nina.is_superuser)
    assert [(action, by) for action, by, *_ in told("account_added", "role_given", "sign_in_linked")] == [
        (action, "system:oidc:corp") for action in ("account_added", "role_given", "sign_in_linked")
    ]
    assert client.get("/runs").status_code == 403
    assert sign_in(Client()).status_code == 302 and User.objects.count() == 1


@pytest.mark.parametrize("wanted", ["nina", "bad name\n", "x" * 200, "", ["nina"], None, "<script>"])
def test_a_name_that_is_taken_or_none_becomes_the_subjects(
    client: Client, idp: Idp, configure: Callable[..., OidcProvider], wanted: Any
) -> None:
    configure(creates_in="newcomers")
    User.objects.create_user("NINA@corp")
    idp.claims |= {"preferred_username": wanted}
    assert sign_in(client).status_code == 302
    assert set(User.objects.values_list("username", flat=True)) == {"NINA@corp", "248289761001@corp"}


def test_groups_give_and_take_the_roles_that_the_mapping_names_and_no_others(
    olga: Someone, idp: Idp, configure: Callable[..., OidcProvider]
) -> None:
    olga.user.groups.add(Group.objects.get_or_create(name="auditor")[0])
    known(olga, idp)
    configure(roles={"finance-team": "approver_finance", "ops": "operator"})
    idp.claims |= {"groups": ["finance-team", "admins", "operator", "superuser"]}
    assert sign_in(olga.client).status_code == 302
    assert set(olga.user.groups.values_list("name", flat=True)) == {"auditor", "approver_finance"}
    assert [(action, by) for action, by, *_ in told("role_given", "role_taken")][-2:] == [
        ("role_given", "system:oidc:corp"),
        ("role_taken", "system:oidc:corp"),
    ]
    idp.claims.pop("groups")
    sign_in(Client())
    assert set(olga.user.groups.values_list("name", flat=True)) == {"auditor"}


@pytest.mark.parametrize("said", [7, {"ops": True}, ["ops", 7], True])
def test_groups_that_are_no_list_sign_nobody_in_and_change_nothing(
    olga: Someone, idp: Idp, configure: Callable[..., OidcProvider], said: Any
) -> None:
    known(olga, idp)
    configure(roles={"ops": "operator"})
    idp.claims |= {"groups": said}
    assert sign_in(olga.client).status_code == 403 and not olga.is_in()
    assert [group.name for group in olga.user.groups.all()] == ["operator"]


# --- with a second factor ---------------------------------------------------------------------------------------------


def test_a_second_factor_here_is_asked_for_after_the_providers_word(with_factor: Someone, idp: Idp) -> None:
    known(with_factor, idp)
    assert sign_in(with_factor.client, "/runs")["Location"] == "/login/code" and not with_factor.is_in()
    assert with_factor.give_code(with_factor.code())["Location"] == "/runs"
    assert with_factor.client.session["signed_in_with"] == "session+sso+totp"


def test_a_provider_that_asks_for_one_itself_is_believed_where_a_setting_says_so(
    olga: Someone, idp: Idp, configure: Callable[..., OidcProvider], required: Callable[..., None]
) -> None:
    known(olga, idp)
    one = configure()
    required("operator")
    assert sign_in(olga.client)["Location"] == "/login/second-factor"
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"oidc": [one.model_copy(update={"has_second_factor": True})]}
    )
    assert sign_in(olga.client)["Location"] == "/" and olga.is_in()


# --- linking ----------------------------------------------------------------------------------------------------------


def link(who: Someone) -> Any:
    page = who.client.post("/account/sign-ins", {"provider": "corp"})
    assert page.status_code == 200 and 'href="/login/sso/corp"' in page.content.decode()
    return who.client.get(out(who.client))


def test_someone_who_is_signed_in_links_and_unlinks_and_both_are_on_record(olga: Someone, idp: Idp) -> None:
    olga.sign_in()
    assert link(olga)["Location"] == "/account/second-factor"
    assert "You can now sign in with Corp." in olga.client.get("/account/second-factor").content.decode()
    there = olga.elsewhere()
    assert sign_in(there.client).status_code == 302 and there.is_in()
    pk = SocialAccount.objects.get().pk
    olga.client.post("/account/sign-ins/removals", {"link": str(pk)})
    assert not SocialAccount.objects.exists() and sign_in(Client()).status_code == 403
    assert [(action, by) for action, by, *_ in told("sign_in_linked", "sign_in_unlinked")] == [
        ("sign_in_linked", "user:olga"),
        ("sign_in_unlinked", "user:olga"),
    ]


def test_nothing_is_linked_that_was_not_asked_for_here(olga: Someone, idp: Idp) -> None:
    """A foreign page sends the browser to begin: a signed-in person lands where they are signed in."""
    olga.sign_in()
    assert olga.client.get("/login/sso/corp")["Location"] == "/"
    begun = Client()
    where = out(begun)
    assert olga.client.get(where).status_code == 403 and not SocialAccount.objects.exists()


def test_linking_needs_a_fresh_proof(olga: Someone, idp: Idp) -> None:
    olga.sign_in()
    grow_old(olga.client)
    assert olga.client.post("/account/sign-ins", {"provider": "corp"}).status_code == 403
    answer = olga.client.post("/account/sign-ins", {"provider": "corp", "proof_password": PASSWORD})
    assert answer.status_code == 200


def test_the_proof_has_to_be_fresh_still_when_the_provider_is_asked(olga: Someone, idp: Idp) -> None:
    """A page that asked for a link and stayed open links nothing hours later, nor after another authentication."""
    olga.sign_in()
    assert olga.client.post("/account/sign-ins", {"provider": "corp"}).status_code == 200
    grow_old(olga.client)
    answer = olga.client.get("/login/sso/corp")
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert LINKING not in olga.client.session
    assert not SocialAccount.objects.exists()


def test_one_subject_is_one_account_and_one_account_one_subject(
    olga: Someone, someone: Callable[..., Someone], idp: Idp
) -> None:
    petra = someone("petra")
    known(petra, idp)
    olga.sign_in()
    assert link(olga).status_code == 409
    petra.sign_in()
    idp.claims = {"sub": "another"}
    assert link(petra).status_code == 409
    assert list(SocialAccount.objects.values_list("user__username", "uid")) == [("petra", "248289761001")]


@pytest.mark.parametrize("given", ["", "x", "-1", "١", "9" * 30])
def test_nobody_unlinks_what_is_anothers_or_nothing(
    olga: Someone, someone: Callable[..., Someone], idp: Idp, given: str
) -> None:
    theirs = known(someone("petra"), idp)
    olga.sign_in()
    assert olga.client.post("/account/sign-ins/removals", {"link": given}).status_code == 404
    olga.client.post("/account/sign-ins/removals", {"link": str(theirs.pk)})
    assert SocialAccount.objects.exists()


def test_an_admin_links_an_account_and_that_is_on_record(
    olga: Someone, someone: Callable[..., Someone], idp: Idp
) -> None:
    boss = someone("root", is_staff=True, is_superuser=True)
    boss.sign_in()
    form = {"user": olga.user.pk, "provider": idp.issuer, "uid": "248289761001"}
    path = "/admin/socialaccount/socialaccount/add/"
    assert boss.client.post(path, {**form, "provider": "https://evil.example"}).status_code == 200
    assert boss.client.post(path, form).status_code == 302
    assert boss.client.post(path, {**form, "uid": "another"}).status_code == 200
    assert [(action, by, subject) for action, by, subject, _ in told("sign_in_linked")] == [
        ("sign_in_linked", "user:root", "user:olga")
    ]
    assert sign_in(olga.client).status_code == 302 and olga.is_in()


# --- unlinking --------------------------------------------------------------------------------------------------------


def test_who_came_in_by_what_is_unlinked_is_out(olga: Someone, idp: Idp) -> None:
    one, there = known(olga, idp), olga.elsewhere()
    olga.sign_in()
    assert sign_in(there.client).status_code == 302 and there.is_in()
    olga.client.post("/account/sign-ins/removals", {"link": "999999"})
    assert there.is_in()
    olga.client.post("/account/sign-ins/removals", {"link": str(one.pk)})
    assert olga.is_in() and not there.is_in()


@pytest.mark.parametrize("how", ["on its page", "in the list"])
def test_who_came_in_by_what_an_administrator_unlinks_is_out(
    olga: Someone, someone: Callable[..., Someone], idp: Idp, how: str
) -> None:
    boss, petra = someone("root", is_staff=True, is_superuser=True), someone("petra")
    one = known(olga, idp)
    own = SocialAccount.objects.create(user=boss.user, provider=idp.issuer, uid="root")
    for each in (boss, petra):
        each.sign_in()
    sign_in(olga.client)
    for link in (one, own):
        assert olga.is_in() is (link == one)
        if how == "on its page":
            path, given = f"/admin/socialaccount/socialaccount/{link.pk}/delete/", {"post": "yes"}
        else:
            path = "/admin/socialaccount/socialaccount/"
            given = {"action": "delete_selected", "_selected_action": str(link.pk), "post": "yes"}
        assert boss.client.post(path, given).status_code == 302
    assert not SocialAccount.objects.exists() and not olga.is_in() and petra.is_in()
    assert boss.is_in(), "a user who takes another way continues there"
