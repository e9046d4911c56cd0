"""Every change to accounts, roles, permissions and keys is recorded permanently."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.db import Error, connection, transaction
from django.test import Client

from durableagents.identity.auth import issue_key
from durableagents.models import ApiKey
from ledger.acting import acting
from ledger.actors import Actor
from ledger.models import AccountRecord
from tests.cases import each_case
from tests.integration.api.conftest import person
from tests.integration.ledger.test_append_only import runtime
from tests.tampering import tamper

pytestmark = pytest.mark.django_db
__all__ = ["runtime"]  # fixture


def told(*fields: str) -> list[tuple[Any, ...]]:
    return list(AccountRecord.objects.order_by("id").values_list(*(fields or ("action", "subject", "before", "after"))))


@pytest.fixture
def ada() -> User:
    """An account whose creation is not in the records."""
    user: User = person("ada", "auditor")
    Group.objects.get_or_create(name="operator")
    tamper("DELETE FROM ledger_accountrecord")
    return user


@pytest.fixture
def boss(ada: User) -> Client:
    client = Client(REMOTE_ADDR="192.0.2.77")
    client.force_login(User.objects.create_user("boss", is_staff=True, is_superuser=True))
    return client


def test_taking_a_role_and_giving_it_back_stays_visible(ada: User) -> None:
    """An administrator could do this to approve something themselves."""
    role = Group.objects.get(name="operator")
    with acting(Actor("user", "boss", auth="session", address="192.0.2.77", person=77)):
        ada.groups.add(role)
        ada.groups.remove(role)
    assert told("action", "subject", "subject_person", "before", "after", "by", "person", "auth", "address") == [
        ("role_given", "user:ada", ada.pk, {}, {"role": "operator"}, "user:boss", 77, "session", "192.0.2.77"),
        ("role_taken", "user:ada", ada.pk, {"role": "operator"}, {}, "user:boss", 77, "session", "192.0.2.77"),
    ]


def test_raw_sql_is_on_record_as_the_database_roles(ada: User) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT session_user")
        (role,) = cursor.fetchone()
        cursor.execute(
            "UPDATE auth_user_groups SET group_id = (SELECT id FROM auth_group WHERE name = "
            "'operator') WHERE user_id = %s",
            [ada.pk],
        )
        cursor.execute("UPDATE auth_user SET is_superuser = true WHERE id = %s", [ada.pk])
        cursor.execute("UPDATE auth_group SET name = 'approver_finance_' WHERE name = 'operator'")
    assert told("action", "subject", "before", "after", "by", "auth") == [
        ("role_taken", "user:ada", {"role": "auditor"}, {}, f"database:{role}", "database"),
        ("role_given", "user:ada", {}, {"role": "operator"}, f"database:{role}", "database"),
        (
            "account_changed",
            "user:ada",
            {"is_superuser": False},
            {"is_superuser": True},
            f"database:{role}",
            "database",
        ),
        (
            "role_renamed",
            "role:approver_finance_",
            {"name": "operator"},
            {"name": "approver_finance_"},
            f"database:{role}",
            "database",
        ),
    ]


def test_every_kind_of_change_is_told_and_no_secret_is(ada: User) -> None:
    token = issue_key(ada, "laptop")
    ApiKey.objects.update(last_used_at="2026-01-01T00:00Z")  # using one is no change
    ApiKey.objects.update(revoked_at="2026-01-01T00:00Z")
    ApiKey.objects.update(revoked_at=None, hash=b"other")
    ApiKey.objects.all().delete()
    permission = Permission.objects.get(codename="add_user")
    ada.user_permissions.add(permission)
    ada.user_permissions.clear()
    role = Group.objects.create(name="helpers")
    role.permissions.add(permission)
    role.delete()
    User.objects.filter(pk=ada.pk).update(last_login="2026-01-01T00:00Z")  # nor is signing in
    ada.username = "Ada"
    ada.set_password("correct horse battery")
    ada.save()
    ada.delete()
    assert [action for action, *_ in told()] == [
        "key_issued",
        "key_revoked",
        "key_changed",
        "key_removed",
        "permission_given",
        "permission_taken",
        "role_added",
        "permission_given",
        "permission_taken",
        "role_removed",
        "account_changed",
        "password_changed",
        "role_taken",
        "account_removed",
    ]
    whole = str(told("action", "subject", "by", "before", "after"))
    assert token not in whole and "correct horse" not in whole
    assert ("account_changed", "user:Ada", {"username": "ada"}, {"username": "Ada"}) in told()
    assert ("permission_given", "role:helpers", {}, {"permission": "add_user"}) in told()
    assert {subject for action, subject, *_ in told() if action.startswith("key_")} == {"key:ada/laptop"}


def test_the_administrators_pages_say_who_did_it(boss: Client, ada: User) -> None:
    groups = [Group.objects.get(name="operator").pk]
    form = {
        "username": "ada",
        "is_active": "on",
        "groups": groups,
        "date_joined_0": "2026-01-01",
        "date_joined_1": "00:00:00",
        "email": "ada@example.org",
    }
    assert boss.post(f"/admin/auth/user/{ada.pk}/change/", form).status_code == 302
    answer = boss.post("/admin/durableagents/apikey/add/", {"user": ada.pk, "name": "laptop"})
    assert answer.status_code == 200
    boss.post("/admin/durableagents/apikey/", {"action": "revoke", "_selected_action": [ApiKey.objects.get().pk]})
    theirs = AccountRecord.objects.filter(
        by="user:boss", address="192.0.2.77", person=User.objects.get(username="boss").pk
    )
    assert set(theirs.values_list("action", flat=True)) == {
        "account_changed",
        "role_given",
        "role_taken",
        "key_issued",
        "key_revoked",
    }
    assert not AccountRecord.objects.exclude(pk__in=theirs).exclude(subject="user:boss").exists()


def test_what_comes_after_a_persons_act_in_the_same_transaction_is_not_theirs(ada: User) -> None:
    with acting(Actor("user", "boss", person=77)):
        User.objects.filter(pk=ada.pk).update(is_staff=True)
    User.objects.filter(pk=ada.pk).update(is_staff=False)
    first, second = told("by")
    assert first == ("user:boss",) and second[0].startswith("database:")


def test_what_failed_is_neither_done_nor_on_record(ada: User) -> None:
    def fail() -> None:
        with acting(Actor("user", "boss", person=77)):
            User.objects.filter(pk=ada.pk).update(is_staff=True)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    ada.refresh_from_db()
    assert told() == [] and not ada.is_staff


def test_a_sign_in_that_renews_an_old_hash_is_no_change_of_password(ada: User, settings: Any) -> None:
    ada.set_password("correct horse battery")
    ada.save()
    settings.PASSWORD_HASHERS = ["durableagents.identity.accounts.Argon2", *settings.PASSWORD_HASHERS]
    assert Client().post("/login", {"username": "ada", "password": "correct horse battery"}).status_code == 302
    assert told() == [
        ("password_changed", "user:ada", {"kind": "md5"}, {"kind": "md5"}),
        ("password_rehashed", "user:ada", {"kind": "md5"}, {"kind": "argon2"}),
    ]
    ada.refresh_from_db()
    assert ada.password.startswith("argon2$argon2id$") and "m=19456,t=2,p=1" in ada.password


def test_commands_are_on_record_too(ada: User) -> None:
    call_command("createsuperuser", username="root", email="root@example.org", interactive=False, verbosity=0)
    assert [(action, subject) for action, subject, *_ in told()] == [("account_added", "user:root")]


# --- nobody rewrites it ---


FORGED = "('role_given', 'user:eve', NULL, 'user:boss', NULL, '', '', '{}', '{}', clock_timestamp())"


@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO ledger_accountrecord (action, subject, subject_person, by, person, auth, "
        f"address, before, after, at) VALUES {FORGED}",
        "SELECT accounts_record('role_given', 'user:eve', NULL, '{}', '{}')",
        "DELETE FROM ledger_accountrecord",
        "UPDATE ledger_accountrecord SET by = 'user:boss'",
        "TRUNCATE ledger_accountrecord",
        "ALTER TABLE auth_user_groups DISABLE TRIGGER ALL",
        "DROP TRIGGER accounts_are_recorded ON auth_user_groups",
        "TRUNCATE auth_user_groups",
        "CREATE OR REPLACE FUNCTION accounts_on_grant() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "SET session_replication_role = replica",
    ],
)
def test_the_runtime_role_can_neither_forge_nor_hide_a_record(runtime: psycopg.Connection[Any], statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        runtime.execute(statement)


@pytest.mark.django_db(transaction=True)
def test_what_the_runtime_role_does_is_recorded_although_it_may_not_write_there(
    runtime: psycopg.Connection[Any],
) -> None:
    runtime.execute("INSERT INTO auth_group (name) VALUES ('mine')")
    record = AccountRecord.objects.get(action="role_added", subject="role:mine")
    assert record.by.startswith("database:") and record.person is None


def test_a_search_path_of_ones_own_leads_nothing_astray(runtime: psycopg.Connection[Any]) -> None:
    runtime.execute("BEGIN")
    runtime.execute("CREATE TEMP TABLE ledger_accountrecord (LIKE public.ledger_accountrecord)")
    runtime.execute("SET LOCAL search_path = pg_temp, public")
    runtime.execute("INSERT INTO public.auth_group (name) VALUES ('mine')")
    assert runtime.execute("SELECT count(*) FROM pg_temp.ledger_accountrecord").fetchone() == (0,)
    assert runtime.execute(
        "SELECT count(*) FROM public.ledger_accountrecord WHERE subject = 'role:mine'"
    ).fetchone() == (1,)
    runtime.execute("ROLLBACK")


@each_case("statement", ["DELETE FROM {}", "UPDATE {} SET by = 'x'", "TRUNCATE {}"])
def test_not_even_the_owner_changes_it(ada: User, statement: str) -> None:
    User.objects.filter(pk=ada.pk).update(is_staff=True)
    with pytest.raises(Error, match=r"(?i)append|truncate|delete"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement.format("ledger_accountrecord"))
    assert len(told()) == 1
