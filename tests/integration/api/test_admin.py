"""Admin pages: for administrators only, and never a way around the record."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import ProtectedError
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from durableagents.models import ApiKey
from ledger.models import AccountRecord, ActRecord
from ledger.web.roles import ROLES
from runs.models import BudgetDefault, Price
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, person
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss() -> Client:
    client = Client()
    client.force_login(person("boss", is_staff=True, is_superuser=True))
    return client


@pytest.mark.needs("accounts")
def test_only_people_roles_keys_and_money_are_set_up_here() -> None:
    names = {model._meta.label for model in admin.site._registry}
    ours = {"durableagents.ApiKey", "durableagents.OwnTag", "runs.Price", "runs.BudgetDefault"}
    assert names == {"auth.User", "auth.Group", "mfa.Authenticator", "socialaccount.SocialAccount", *ours}


@each_case("role", [*ROLES, None])
def test_nobody_else_gets_in(role: str | None) -> None:
    client = Client()
    if role is None:
        assert client.get("/admin/", follow=True).redirect_chain[-1][0].startswith("/login?next=/admin/")
        return
    client.force_login(person(role, role))
    assert client.get("/admin/", follow=True).status_code == 403


def test_a_key_is_shown_once_and_works_until_it_is_revoked(boss: Client) -> None:
    ada = person("ada", "auditor")
    form = boss.get("/admin/durableagents/apikey/add/").content.decode()
    assert f'value="{timezone.now().year + 1}-' in form, "a key ends by itself unless somebody says otherwise"
    answer = boss.post("/admin/durableagents/apikey/add/", {"user": ada.pk, "name": "laptop"})
    assert answer.status_code == 200 and "no-store" in answer["Cache-Control"]
    assert "messages" not in answer.cookies and "da_" not in str(answer.cookies)
    (token,) = re.findall(r"da_[\w-]{40,}", answer.content.decode())
    assert Api(token).get("runs").status_code == 200
    assert token not in boss.get("/admin/durableagents/apikey/").content.decode()
    key = ApiKey.objects.get()
    assert boss.get(f"/admin/durableagents/apikey/{key.pk}/change/").status_code in (200, 403)
    assert boss.post(f"/admin/durableagents/apikey/{key.pk}/delete/", {"post": "yes"}).status_code == 403
    boss.post("/admin/durableagents/apikey/", {"action": "revoke", "_selected_action": [key.pk]})
    assert Api(token).get("runs").status_code == 401


def test_an_account_that_the_log_names_is_kept_and_others_can_be_deleted(boss: Client) -> None:
    """The runtime role may not delete from the log, so Django must not try: see durableagents/grants.py."""
    acted, idle = person("acted", is_staff=True, is_superuser=True), person("idle")
    log = LogEntry.objects.create(user=acted, action_flag=CHANGE, object_repr="a price")
    administrator = User.objects.get(username="boss")
    for kept in (acted, administrator):
        page = boss.post(f"/admin/auth/user/{kept.pk}/delete/", {"post": "yes"}).content.decode()
        assert f"{kept.username} is named in the change log" in page and User.objects.filter(pk=kept.pk).exists()
    with pytest.raises(ProtectedError), transaction.atomic():
        acted.delete()
    with CaptureQueriesContext(connection) as queries:
        assert boss.post(f"/admin/auth/user/{idle.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not [each for each in queries if each["sql"].startswith('DELETE FROM "django_admin_log"')]
    assert not User.objects.filter(pk=idle.pk).exists() and LogEntry.objects.filter(pk=log.pk).exists()


# --- money ------------------------------------------------------------------------------------------------------------

PRICES, DEFAULTS = "/admin/runs/price/", "/admin/runs/budgetdefault/"


def acts() -> list[tuple[str, str, str, dict[str, object], dict[str, object]]]:
    return list(ActRecord.objects.order_by("n").values_list("action", "by", "subject", "before", "after"))


def test_a_price_is_typed_in_dollars_and_who_set_it_is_the_servers_to_say(boss: Client) -> None:
    typed = {"model": "our:own", "usd_in": "2.50", "usd_out": "0.000001", "set_by": "user:somebody", "id": "77"}
    assert boss.post(f"{PRICES}add/", typed).status_code == 302
    price = Price.objects.get(model="our:own")
    assert (price.usd_micro_in, price.usd_micro_out, price.set_by) == (2_500_000, 1, "user:boss")
    assert price.valid_from == price.set_at and price.pk != 77
    ((action, by, subject, before, after),) = acts()
    assert (action, by, subject, before) == ("price", "user:boss", "our:own", {})
    assert (after["usd_in"], after["usd_out"]) == ("2.50", "0.000001")
    assert "2.50" in boss.get(PRICES).content.decode()


@each_case(
    "wrong",
    [
        {"usd_in": "-1"},
        {"usd_in": "0.0000001"},
        {"usd_in": "NaN"},
        {"usd_in": "much"},
        {"usd_in": ""},
        {"usd_out": "1000001"},
        {"model": ""},
        {"model": "gpt"},
        {"model": "a b:c"},
        {"model": "a:b\x01"},
        {"valid_from": "soon"},
    ],
)
def test_a_wrong_price_is_not_taken(boss: Client, wrong: dict[str, str]) -> None:
    known = Price.objects.count()
    answer = boss.post(f"{PRICES}add/", {"model": "our:own", "usd_in": "1", "usd_out": "1", **wrong})
    assert answer.status_code == 200 and "errorlist" in answer.content.decode()
    assert Price.objects.count() == known and acts() == []


@each_case(
    "wrong",
    [
        {"budget": '{"eur": 5}'},
        {"budget": '{"steps": -1}'},
        {"budget": "{}"},
        {"budget": "[]"},
        {"budget": "7"},
        {"budget": "{"},
        {"budget": ""},
        {"budget": '{"usd": NaN}'},
        {"tag": "both"},
        {"agent": ""},
        {"agent": "nobodys"},
    ],
)
def test_a_wrong_default_is_not_taken(boss: Client, wrong: dict[str, str]) -> None:
    answer = boss.post(f"{DEFAULTS}add/", {"agent": "order", "tag": "", "budget": '{"steps": 9}', **wrong})
    assert answer.status_code == 200 and "errorlist" in answer.content.decode()
    assert not BudgetDefault.objects.exists() and acts() == []


def test_a_key_is_issued_with_what_it_may_give_and_that_is_on_record(boss: Client) -> None:
    ada = person("ada", "integrator")
    form = {"user": ada.pk, "name": "till", "budget": '{"steps": -1}'}
    answer = boss.post("/admin/durableagents/apikey/add/", form)
    assert "steps: " in answer.content.decode() and not ApiKey.objects.exists()
    answer = boss.post("/admin/durableagents/apikey/add/", {**form, "budget": '{"steps": 7}'}, follow=True)
    (token,) = re.findall(r"da_[\w-]{40,}", answer.content.decode())
    assert Api(token).post("runs", START).json()["budget"]["caps"]["steps"] == 7
    record = AccountRecord.objects.get(action="key_issued")
    assert record.after["budget"] == {"steps": 7}
    rewrite(ApiKey.objects.all(), budget=None)
    assert AccountRecord.objects.get(action="key_changed").before == {"budget": {"steps": 7}}


@each_case("role", [*ROLES, None])
def test_nobody_else_sets_prices_or_defaults(role: str | None) -> None:
    client, known = Client(), Price.objects.count()
    if role is not None:
        client.force_login(person(role, role))
    client.post(f"{PRICES}add/", {"model": "our:own", "usd_in": "1", "usd_out": "1"})
    client.post(f"{DEFAULTS}add/", {"agent": "order", "budget": '{"steps": 9}'})
    assert Price.objects.count() == known and not BudgetDefault.objects.exists()
