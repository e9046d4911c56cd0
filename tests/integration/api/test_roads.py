"""Attacks by SQL with the application's role but without the master key: each is refused, and verification names it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from approvals.models import Approval, Decision
from durableagents.identity.session_rows import row_key
from ledger.verification.registers import verify_registers
from runs.console.socket_watch import SIGNED_OUT, verdicts
from runs.models import BudgetDefault, Run
from runs.services.budgets import prices
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem, person
from tests.integration.approvals.setup import WHY, asked
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.stage import Stage
from tests.world import Toolbox, only_for_now

pytestmark = pytest.mark.django_db
ADMIN = {"by": "user:admin", "person": 7, "auth": "session+passkey", "address": "10.1.2.3"}
PASSWORD = "correct horse battery"


@contextmanager
def intruder(by: str = "user:admin") -> Iterator[Any]:
    """Return a cursor with the application's database rights that names another actor."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {settings.DURABLEAGENTS_RUNTIME_ROLE or 'durableagents'}")
        cursor.execute("SELECT set_config('durableagents.actor', %s, true)", [json.dumps(ADMIN | {"by": by})])
        yield cursor
        cursor.execute("SELECT set_config('durableagents.actor', '', true)")
        cursor.execute("RESET ROLE")


def named() -> str:
    return "\n".join(problem for listed in verify_registers() for problem in listed.problems)


def forge_approver(name: str, token: str) -> int:
    with intruder() as cursor:
        cursor.execute(
            "INSERT INTO auth_user (username, password, first_name, last_name, email, is_active, is_staff,"
            " is_superuser, date_joined) VALUES (%s, '!', '', '', 'eve@example.org', true, false, false, now())"
            " RETURNING id",
            [name],
        )
        (eve,) = cursor.fetchone()
        role = Group.objects.get(name="approver_finance").pk
        cursor.execute("INSERT INTO auth_user_groups (user_id, group_id) VALUES (%s, %s)", [eve, role])
        cursor.execute(
            "INSERT INTO durableagents_apikey (user_id, name, prefix, hash, created_at)"
            " VALUES (%s, 'mine', 'da_', %s, now())",
            [eve, hashlib.sha256(token.encode()).digest()],
        )
    return int(eve)


@pytest.mark.django_db(transaction=True)
def test_forged_approver_with_a_key_approves_no_order(stage: Stage, tools: Toolbox) -> None:  # noqa: F811
    with only_for_now():
        approval = asked(stage, tools)
        eve = forge_approver("eve", "token of mine")
        body = {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": WHY}
        answer = Api("token of mine").post(f"approvals/{approval.id}/decision", body)
        assert answer.status_code == 401 and "outside the application" in answer.json()["detail"]
        assert Approval.objects.get().state == "open" and not Decision.objects.exists()
    problems = named()
    assert "account 'eve'" in problems and "API key 'mine'" in problems and "says it was done by user:admin" in problems
    assert not User.objects.get(pk=eve).has_perm("approvals.change_queue")


def test_swapped_password_signs_nobody_in() -> None:
    """The record still shows the change when the old password is back."""
    finance = person("finance", "approver_finance")
    for password in (make_password("mine, all mine"), finance.password):
        with intruder("user:finance") as cursor:
            cursor.execute("UPDATE auth_user SET password = %s WHERE id = %s", [password, finance.pk])
        if password != finance.password:
            client = Client()
            answer = client.post("/login", {"username": "finance", "password": "mine, all mine"})
            assert answer.status_code == 403 and "outside the application" in answer.content.decode()
            assert client.get("/inbox").status_code == 302
    assert named().count("done by user:finance") >= 2


@pytest.mark.needs("accounts")
def test_forged_invitation_makes_no_administrator() -> None:
    maker = User.objects.create_superuser("admin", password="x")
    with intruder() as cursor:
        cursor.execute(
            "INSERT INTO durableagents_invitation (username, email, roles, is_admin, token_hash, made_by, maker,"
            " made_at, expires_at) VALUES ('eve', 'eve@example.org', '[]', true, %s, 'user:admin', %s, now(),"
            " now() + interval '1 day')",
            [hashlib.sha256(b"eve").digest(), maker.pk],
        )
    answer = Client().post("/invited/eve", {"new_password1": PASSWORD, "new_password2": PASSWORD})
    assert answer.status_code == 403 and not User.objects.filter(username="eve").exists()
    assert "invitation of 'eve'" in named()


@pytest.mark.needs("accounts")
def test_deleted_factors_open_no_road_to_a_passkey() -> None:
    finance = person("finance", "approver_finance")
    finance.set_password(PASSWORD)
    finance.save()
    finance.authenticator_set.create(type="webauthn", data={"id": "x", "name": "key", "sign_count": 0})
    with intruder("user:finance") as cursor:
        cursor.execute("DELETE FROM mfa_authenticator WHERE user_id = %s", [finance.pk])
    client = Client()
    answer = client.post("/login", {"username": "finance", "password": PASSWORD})
    assert answer.status_code == 403 and client.get("/account").status_code == 302
    assert "account 'finance'" in named()


def test_forged_price_counts_for_nothing() -> None:
    prices.ship()
    model = next(iter(prices.SHIPPED))
    prices.table.read()
    assert prices.table.of(model) is not None
    with intruder() as cursor:
        cursor.execute(
            "INSERT INTO runs_price (model, usd_micro_in, usd_micro_out, valid_from, set_by, set_at)"
            " VALUES (%s, 0, 0, clock_timestamp(), 'user:admin', now())",
            [model],
        )
    assert prices.without_price([model]) == [model] and f"price of '{model}'" in named()


@each_case(
    "change",
    [
        "UPDATE runs_budgetdefault SET budget = '{\"steps\": 999}'",
        "DELETE FROM runs_budgetdefault",
        "INSERT INTO runs_budgetdefault (agent, tag, budget) VALUES ('order', '', '{\"steps\": 9}')",
    ],
)
def test_changed_budget_default_starts_nothing(integrator: Api, change: str) -> None:
    BudgetDefault.objects.create(agent="order@1.0.0", budget={"steps": 5})
    with intruder() as cursor:
        cursor.execute(change)
    assert is_problem(integrator.post("runs", START), 403, "changed-outside") and not Run.objects.exists()
    assert "default budget" in named()


@pytest.mark.needs("accounts")
def test_session_table_opens_no_session() -> None:
    """Neither its key, nor data moved to another row, nor a forged row."""
    ada = person("ada", "operator")
    client = Client()
    client.force_login(ada)
    row = Session.objects.get()
    cookie, mine = settings.SESSION_COOKIE_NAME, "a" * 32
    with intruder() as cursor:
        for key in (row_key(mine), mine):
            cursor.execute(
                "INSERT INTO django_session SELECT %s, session_data, expire_date FROM django_session"
                " WHERE session_key = %s",
                [key, row.pk],
            )
    for key in (row.pk, mine):
        thief = Client()
        thief.cookies[cookie] = key
        assert thief.get("/account").status_code == 302 and verdicts([key]) == {key: SIGNED_OUT}
    assert client.get("/account").status_code == 200
    assert named().count("session") >= 2 and row.pk not in named()


@pytest.mark.needs("accounts")
def test_ended_session_stays_ended() -> None:
    """Neither a later end in the table nor a copied or moved row reopens it."""
    ada = person("ada", "operator")
    late, out, live = Client(), Client(), Client()
    for client in (late, out, live):
        client.force_login(ada)
    session = late.session
    session.set_expiry(timezone.now() - timedelta(seconds=1))
    session.save()
    keys = {client: row_key(client.session.session_key) for client in (late, out, live)}
    copy = Session.objects.get(pk=keys[out])
    out.post("/logout")
    with intruder() as cursor:
        cursor.execute("UPDATE django_session SET expire_date = now() + interval '1 hour'")
        cursor.execute(
            "UPDATE django_session SET expire_date = expire_date - interval '50 minutes' WHERE session_key = %s",
            [keys[live]],
        )
    for sql, values in (
        ("INSERT INTO django_session VALUES (%s, %s, %s)", [copy.pk, copy.session_data, copy.expire_date]),
        ("UPDATE django_session SET session_key = %s WHERE session_key = %s", [copy.pk, keys[late]]),
        ("DELETE FROM durableagents_endedsession", []),
    ):
        with pytest.raises(DatabaseError), intruder() as cursor:
            cursor.execute(sql, values)
    assert [client.get("/account").status_code for client in (late, out, live)] == [302, 302, 200]
    assert keys[late] in named() and keys[live] not in named()
