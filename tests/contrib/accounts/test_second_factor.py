"""A password alone doesn't sign in people who have or need a second factor."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from durableagents.contrib.accounts import door
from durableagents.contrib.accounts.sealing import Adapter, sealed_for
from durableagents.identity.auth import issue_key
from ledger.models import AccountRecord, OverrideRecord
from ledger.web.seeing.viewers import EVERYTHING
from runs.console.socket_watch import SIGNED_OUT, verdicts
from tests.contrib.accounts.conftest import Clock, Someone, codes_on, secret_on
from tests.integration.console.conftest import buyer, start
from tests.integration.runs.stage import at_once
from tests.rewriting import rewrite

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


def told(action: str) -> list[tuple[str, str, str, Any, Any]]:
    rows = AccountRecord.objects.filter(action=action).order_by("id")
    return list(rows.values_list("by", "subject", "auth", "before", "after"))


# --- setting one up ---------------------------------------------------------------------------------------------------


def test_it_is_set_up_by_the_code_that_the_device_shows_and_is_on_record(olga: Someone) -> None:
    olga.sign_in()
    codes = olga.set_up()
    assert len(codes) == len(set(codes)) == 10
    assert told("factor_added") == [
        ("user:olga", "user:olga", "session", {}, {"factor": kind}) for kind in ("totp", "recovery_codes")
    ]
    assert "10 recovery codes left" in olga.client.get("/account/second-factor").content.decode()


def test_a_wrong_code_sets_nothing_up_and_the_same_key_is_shown_again(olga: Someone) -> None:
    olga.sign_in()
    key = secret_on(olga.client.get("/account/second-factor"))
    answer = olga.client.post("/account/second-factor", {"code": "000000"})
    assert answer.status_code == 422 and "already used" in answer.content.decode() and secret_on(answer) == key
    assert not Authenticator.objects.exists()


@pytest.mark.parametrize("code", ["", "12 34", "abcdef", "1234567", "１２３４５６"])
def test_what_can_be_no_code_counts_as_no_try_where_one_is_set_up(olga: Someone, code: str) -> None:
    olga.sign_in()
    olga.client.get("/account/second-factor")
    for _ in range(6):
        answer = olga.client.post("/account/second-factor", {"code": code})
        assert answer.status_code == 422 and "six-digit code" in answer.content.decode()
    olga.set_up()


def test_slips_on_the_way_to_a_first_factor_do_not_count_at_the_next_sign_in(olga: Someone) -> None:
    olga.sign_in()
    olga.client.get("/account/second-factor")
    for _ in range(4):
        assert olga.client.post("/account/second-factor", {"code": "000000"}).status_code == 422
    olga.set_up()
    there = olga.elsewhere()
    there.sign_in()
    assert [there.give_code("000000").status_code for _ in range(4)] == [422] * 4
    assert there.give_code(there.code()).status_code == 302


def test_someone_who_has_but_the_password_can_not_clear_the_tries_by_setting_one_up(
    olga: Someone, required: Callable[..., None]
) -> None:
    """Not even with a secret that the page gave them before there was a factor."""
    required("operator")
    thief = olga.elsewhere()
    thief.sign_in()
    thief.secret = secret_on(thief.client.get("/login/second-factor"))
    olga.sign_in()
    olga.secret = secret_on(olga.client.get("/login/second-factor"))
    olga.client.post("/login/second-factor", {"code": olga.code()})
    guesses = thief.elsewhere()
    guesses.sign_in()
    assert [guesses.give_code("000000").status_code for _ in range(4)] == [422] * 4
    thief.client.post("/login/second-factor", {"code": thief.code()})
    guesses.sign_in()
    assert guesses.give_code("000000").status_code == 429 and not thief.is_in() and not guesses.is_in()


def test_it_is_set_up_once(olga: Someone) -> None:
    """In two windows: the second one changes nothing."""
    olga.sign_in()
    olga.set_up()
    kept = list(Authenticator.objects.order_by("id").values_list("data", flat=True))
    session = olga.client.session
    with sealed_for(olga.user):
        session["factor_draft"] = Adapter().encrypt(olga.secret)
    session.save()
    assert olga.client.post("/account/second-factor", {"code": olga.code()}).status_code == 409
    assert list(Authenticator.objects.order_by("id").values_list("data", flat=True)) == kept


def test_no_secret_is_readable_in_the_database_before_or_after(olga: Someone) -> None:
    olga.sign_in()
    secret = secret_on(olga.client.get("/account/second-factor"))
    assert secret not in json.dumps(dict(olga.client.session.items()))
    olga.set_up()
    assert olga.secret == secret
    with connection.cursor() as cursor:
        cursor.execute("SELECT data::text FROM mfa_authenticator")
        kept = " ".join(text for (text,) in cursor.fetchall())
    assert secret not in kept
    assert secret not in str(list(AccountRecord.objects.values_list("before", "after")))


def test_setting_one_up_makes_the_session_a_stronger_one_under_a_new_key(olga: Someone) -> None:
    olga.sign_in()
    before = olga.client.session.session_key
    olga.set_up()
    assert olga.client.session.session_key != before
    assert olga.client.session["signed_in_with"] == "session+totp"


ODD = [
    "foo",
    "%",
    "?x=1",
    "%2f%2fevil",
    "setup_claim",
    "logout",
    "../x",
    ".",
    "runs",
    "\\evil",
    "/\\evil",
    "//evil",
    "x/y",
]


@pytest.mark.parametrize("wanted", ODD)
def test_what_is_no_address_of_this_site_keeps_nobody_out_and_costs_no_code(olga: Someone, wanted: str) -> None:
    """A failing sign-in used up a recovery code."""
    olga.sign_in()
    codes = olga.set_up()
    assert olga.client.get("/login", {"next": wanted})["Location"] == "/"
    there = olga.elsewhere()
    there.sign_in(next=wanted)
    answer = there.give_code(codes[0])
    assert (answer.status_code, answer["Location"]) == (302, "/") and there.is_in()


@pytest.mark.parametrize(
    "code", ["", " - ", "abcdef", "１２３４５６", "12345", "1234567", "\x00" * 6, "9" * 10_000, "🙂" * 6, "-1"]
)
def test_what_can_be_no_code_counts_as_no_try_at_the_sign_in(with_factor: Someone, code: str) -> None:
    with_factor.sign_in()
    for _ in range(6):
        answer = with_factor.give_code(code)
        assert answer.status_code == 422 and "recovery code" in answer.content.decode()
        assert not with_factor.is_in()
    assert with_factor.give_code(with_factor.code()).status_code == 302 and with_factor.is_in()


# --- signing in -------------------------------------------------------------------------------------------------------


def test_after_the_password_comes_the_code_and_nobody_is_in_before(with_factor: Someone) -> None:
    answer = with_factor.sign_in(next="/runs")
    assert (answer.status_code, answer["Location"]) == (302, "/login/code")
    assert not with_factor.is_in() and "_auth_user_id" not in with_factor.client.session
    assert with_factor.client.get("/api/v1/runs").status_code == 401
    assert verdicts([with_factor.client.session.session_key]) == {with_factor.client.session.session_key: SIGNED_OUT}
    answer = with_factor.give_code(with_factor.code())
    assert (answer.status_code, answer["Location"]) == (302, "/runs") and with_factor.is_in()


def test_every_act_says_how_its_person_was_signed_in(with_factor: Someone, someone: Callable[..., Someone]) -> None:
    petra = someone("petra", "operator")
    with_factor.sign_in()
    with_factor.give_code(with_factor.code())
    petra.sign_in()
    with buyer():
        run = start()
        with_factor.client.post(f"/runs/{run.id}/pauses", {"justification": "looking"})
        petra.client.post(f"/runs/{run.id}/resumptions", {"justification": "looked"})
    assert list(OverrideRecord.objects.order_by("id").values_list("by", "auth")) == [
        ("user:olga", "session+totp"),
        ("user:petra", "session"),
    ]


def test_a_code_is_good_once_whichever_browser_brings_it(with_factor: Someone) -> None:
    code, other = with_factor.code(), with_factor.elsewhere()
    with_factor.sign_in()
    assert with_factor.give_code(code).status_code == 302
    for _ in range(2):  # also during the step in which it would still be valid
        other.sign_in()
        answer = other.give_code(code)
        assert answer.status_code == 422 and not other.is_in()
        with_factor.clock.pass_steps()


@pytest.mark.django_db(transaction=True)
def test_one_code_that_two_sign_ins_bring_at_once_lets_one_in(with_factor: Someone) -> None:
    code, people = with_factor.code(), [with_factor, *(with_factor.elsewhere() for _ in range(3))]
    for each in people:
        each.sign_in()
    answers = at_once(*(lambda each=each: each.give_code(code).status_code for each in people))
    assert sorted(answers) == [302, 422, 422, 422] and [each.is_in() for each in people].count(True) == 1


@pytest.mark.parametrize(("skew", "is_right"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_a_device_may_be_a_step_off(with_factor: Someone, skew: int, is_right: bool) -> None:
    with_factor.sign_in()
    assert (with_factor.give_code(with_factor.code(skew)).status_code == 302) is is_right
    assert with_factor.is_in() is is_right


def test_an_older_code_is_refused_after_a_newer_one(with_factor: Someone) -> None:
    with_factor.sign_in()
    with_factor.give_code(with_factor.code(1))
    other = with_factor.elsewhere()
    other.sign_in()
    assert other.give_code(other.code(0)).status_code == 422


def test_blanks_in_a_code_are_for_reading(with_factor: Someone) -> None:
    with_factor.sign_in()
    code = with_factor.code()
    assert with_factor.give_code(f" {code[:3]} {code[3:]} ").status_code == 302


def test_guessing_codes_is_slowed_down_for_all_addresses_together(with_factor: Someone) -> None:
    for at in range(5):
        there = with_factor.elsewhere()
        there.client = Client(REMOTE_ADDR=f"192.0.2.{at}")
        there.sign_in()
        assert there.give_code("000000").status_code == 422
    with_factor.sign_in()
    answer = with_factor.give_code(with_factor.code())
    assert answer.status_code == 429 and int(answer["Retry-After"]) > 0 and not with_factor.is_in()


@pytest.mark.parametrize("guessed", ["000000", "00000000"])
def test_guesses_at_one_kind_of_code_leave_the_other_kind_usable(olga: Someone, guessed: str) -> None:
    olga.sign_in()
    codes, there = olga.set_up(), olga.elsewhere()
    there.sign_in()
    assert [there.give_code(guessed).status_code for _ in range(6)] == [422] * 5 + [429]
    there.sign_in()
    other = codes[0] if guessed == "000000" else there.code()
    assert there.give_code(other).status_code == 302 and there.is_in()


def test_someone_who_waits_too_long_at_the_door_begins_again(
    with_factor: Someone, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_factor.sign_in()
    session = with_factor.client.session
    session["at_the_door"] = {**session["at_the_door"], "at": session["at_the_door"]["at"] - door.WAITS_SECONDS - 1}
    session.save()
    answer = with_factor.give_code(with_factor.code())
    assert answer["Location"] == "/login" and not with_factor.is_in()


@pytest.mark.parametrize("change", ["password", "closed", "gone"])
def test_an_account_that_is_otherwise_meanwhile_does_not_come_in(with_factor: Someone, change: str) -> None:
    with_factor.sign_in()
    if change == "gone":
        User.objects.all().delete()
    else:
        with_factor.user.is_active = change != "closed"
        if change == "password":
            with_factor.user.set_password("another one entirely")
        with_factor.user.save()
    assert with_factor.give_code(with_factor.code())["Location"] == "/login"


def test_nobody_at_the_door_gets_a_form(client: Client) -> None:
    for path in ("/login/code", "/login/second-factor"):
        assert client.get(path)["Location"] == "/login" and client.post(path, {"code": "1"})["Location"] == "/login"


def test_the_person_before_is_gone_when_somebody_else_comes_to_the_door(
    with_factor: Someone, someone: Callable[..., Someone]
) -> None:
    petra = someone("petra", "auditor")
    petra.sign_in()
    with_factor.client = petra.client
    with_factor.sign_in()
    assert not with_factor.is_in()


# --- recovery codes ---------------------------------------------------------------------------------------------------


def test_a_recovery_code_lets_in_once_and_that_is_on_record(olga: Someone) -> None:
    olga.sign_in()
    codes = olga.set_up()
    for expected in (302, 422):
        there = olga.elsewhere()
        there.sign_in()
        assert there.give_code(codes[3]).status_code == expected
        assert there.is_in() is (expected == 302)
    assert told("recovery_code_used") == [("user:olga", "user:olga", "session", {"codes_left": 10}, {"codes_left": 9})]


def test_a_session_by_recovery_code_says_so(olga: Someone) -> None:
    olga.sign_in()
    (code, *_), there = olga.set_up(), olga.elsewhere()
    there.sign_in()
    there.give_code(f"{code[:4]}-{code[4:]}")
    assert there.client.session["signed_in_with"] == "session+recovery_code"


def test_new_recovery_codes_take_the_place_of_those_before(olga: Someone) -> None:
    olga.sign_in()
    before = olga.set_up()
    now = codes_on(olga.client.post("/account/second-factor/recovery-codes"))
    assert len(now) == 10 and set(now).isdisjoint(before)
    there = olga.elsewhere()
    there.sign_in()
    assert there.give_code(before[0]).status_code == 422
    assert there.give_code(now[0]).status_code == 302


# --- damage and forgery -----------------------------------------------------------------------------------------------


SECRETS = ["", "1:", "1:AAAA", "2:whatever", "JBSWY3DPEHPK3PXP", None, 7, {"of": "another"}]
STEPS = [{"used_step": "x"}, {"used_step": 2**70}, {"used_step": [1]}]


@pytest.mark.parametrize("data", [[], {}, *STEPS, *({"secret": each} for each in SECRETS), "of another account"])
def test_a_damaged_factor_lets_nobody_in_and_says_what_to_do(
    with_factor: Someone, someone: Callable[..., Someone], data: Any
) -> None:
    if data == "of another account":
        with sealed_for(someone("eve").user):
            data = {"secret": Adapter().encrypt(with_factor.secret)}
    (row,) = Authenticator.objects.all()
    rewrite(Authenticator.objects.all(), data={**row.data, **data} if data and isinstance(data, dict) else data)
    with_factor.sign_in()
    answer = with_factor.give_code(with_factor.code())
    assert answer.status_code == 409 and "Ask an administrator" in answer.content.decode()
    assert not with_factor.is_in()


@pytest.mark.parametrize(
    "data",
    [[], {}, {"seed": 7}, {"used_mask": -1}, {"used_mask": None}, {"migrated_codes": [7]}, {"migrated_codes": 7}],
)
def test_recovery_codes_that_nobody_can_read_open_nothing_and_say_so(olga: Someone, data: Any) -> None:
    olga.sign_in()
    codes, there = olga.set_up(), olga.elsewhere()
    row = Authenticator.objects.get(type="recovery_codes")
    rewrite(
        Authenticator.objects.filter(pk=row.pk), data={**row.data, **data} if data and isinstance(data, dict) else data
    )
    page = olga.client.get("/account/second-factor")
    assert page.status_code == 409 and "Ask an administrator" in page.content.decode()
    there.sign_in()
    answer = there.give_code(codes[0])
    assert answer.status_code == 409 and not there.is_in()
    there.clock.pass_steps()
    assert there.give_code(there.code()).status_code == 302 and there.is_in(), "the device itself is as good as ever"


# --- roles that need one ----------------------------------------------------------------------------------------------


def test_someone_who_needs_one_sets_it_up_before_they_come_in(olga: Someone, required: Callable[..., None]) -> None:
    required("oper*")
    answer = olga.sign_in(next="/runs")
    assert answer["Location"] == "/login/second-factor" and not olga.is_in()
    page = olga.client.get("/login/second-factor")
    olga.secret = secret_on(page)
    assert olga.client.post("/login/second-factor", {"code": "000000"}).status_code == 422 and not olga.is_in()
    answer = olga.client.post("/login/second-factor", {"code": olga.code()})
    assert len(codes_on(answer)) == 10 and 'href="/runs"' in answer.content.decode()
    assert olga.is_in() and olga.client.session["signed_in_with"] == "session+totp"
    assert told("factor_added")[0][:3] == ("user:olga", "user:olga", "session")


def test_others_need_none(olga: Someone, required: Callable[..., None]) -> None:
    required("approver_*", "staff")
    assert olga.sign_in()["Location"] == "/" and olga.is_in()


def test_someone_who_may_open_the_administration_can_be_asked_for_one(
    someone: Callable[..., Someone], required: Callable[..., None]
) -> None:
    required("staff")
    root = someone("root", is_staff=True, is_superuser=True)
    assert root.sign_in()["Location"] == "/login/second-factor"
    assert root.client.get("/admin/", follow=True).status_code == 200  # the sign-in page
    assert b"Sign in" in root.client.get("/admin/", follow=True).content


def test_a_session_without_one_is_nobodys_as_soon_as_a_role_comes_that_needs_it(
    someone: Callable[..., Someone], required: Callable[..., None]
) -> None:
    required("operator")
    ada = someone("ada", "auditor")
    ada.sign_in()
    key = ada.client.session.session_key
    assert ada.is_in() and verdicts([key]) == {key: EVERYTHING}
    ada.user.groups.add(Group.objects.get_or_create(name="operator")[0])
    assert not ada.is_in() and verdicts([key]) == {key: SIGNED_OUT}
    assert ada.client.get("/api/v1/runs").status_code == 401
    assert ada.client.get("/admin/")["Location"].startswith("/admin/login/")


def test_api_keys_are_not_affected(olga: Someone, required: Callable[..., None]) -> None:
    required("*")
    token = issue_key(olga.user, "till")
    answer = Client().get("/api/v1/runs", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 200


def test_someone_who_is_asked_to_set_one_up_and_has_one_by_now_begins_again(
    with_factor: Someone, required: Callable[..., None], clock: Clock
) -> None:
    required("operator")
    Authenticator.objects.all().delete()
    with_factor.sign_in()
    with_factor.client.get("/login/second-factor")
    Authenticator.objects.create(user=with_factor.user, type="totp", data={"secret": "theirs"})
    assert with_factor.client.get("/login/second-factor")["Location"] == "/login"
    assert not with_factor.is_in()
