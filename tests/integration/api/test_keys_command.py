"""`manage.py keys create`: prints a working API key once; refusals are one line."""

from __future__ import annotations

import getpass
import json
import os
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client

from durableagents.env import EnvironmentProblem
from durableagents.identity import bootstrap
from durableagents.models import ApiKey
from ledger.acting import acting
from ledger.clock import database_now
from ledger.models import AccountRecord
from runs.management.shell import command_actor

pytestmark = pytest.mark.django_db


def keys(*more: str) -> str:
    out = StringIO()
    call_command("keys", *more, stdout=out)
    return out.getvalue().strip()


def create(*more: str) -> str:
    return keys("create", *more)


def test_a_created_key_opens_the_api_and_is_on_record_as_the_shells() -> None:
    Group.objects.get_or_create(name="integrator")
    token = create("--account", "ci", "--name", "deploy", "--expires", "90d", "--create-account", "integrator")
    answer = Client().get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"})
    key = ApiKey.objects.get()
    assert answer.status_code == 200 and not User.objects.get(username="ci").has_usable_password()
    assert key.expires_at is not None and (key.expires_at - key.created_at).days in (89, 90)
    assert create("--account", "ci", "--name", "other") != token
    found = AccountRecord.objects.values_list("action", "by", "auth")
    for action in ("account_added", "role_given", "key_issued"):
        assert (action, f"os:{getpass.getuser()}", "shell") in found, action


def test_an_account_without_a_name_is_on_record_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    Group.objects.get_or_create(name="integrator")
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_123)  # containers run under numbers that /etc/passwd lacks
    assert create("--account", "ci", "--name", "deploy", "--create-account", "integrator")
    assert {"os:uid:2000000123"} == set(AccountRecord.objects.values_list("by", flat=True))


def test_a_rotated_key_replaces_the_old_one_and_a_revoked_one_opens_nothing() -> None:
    Group.objects.get_or_create(name="integrator")
    old = create("--account", "ci", "--name", "deploy", "--expires", "90d", "--create-account", "integrator")

    def opens(token: str) -> bool:
        return Client().get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 200

    first = ApiKey.objects.get()
    with acting(command_actor(), "test"):  # as an administrator would have set it
        first.budget = {"steps": 5}
        first.save(update_fields=["budget"])
    kept = keys("rotate", str(first.pk), "--overlap", "2h")
    second = ApiKey.objects.get(revoked_at=None, expires_at__gt=database_now() + timedelta(days=1))
    assert opens(old) and opens(kept) and (second.name, second.budget) == ("deploy", {"steps": 5})
    assert second.expires_at == first.expires_at  # as long as the old one, not longer
    with pytest.raises(CommandError, match=f"key {second.pk} replaces it"):
        keys("rotate", str(first.pk))
    new = keys("rotate", str(second.pk))
    assert opens(new) and not opens(kept)
    for gone, why in [(second.pk, f"no valid key has the number {second.pk}"), (10**6, "no valid key has the number")]:
        for verb in ("rotate", "revoke"):
            with pytest.raises(CommandError, match=why) as refused:
                keys(verb, str(gone))
            assert refused.value.returncode == 2
    rows = [json.loads(line) for line in keys("list", "--json").splitlines()]
    assert [row["account"] for row in rows] == ["ci", "ci"] and new not in keys("list", "--all")
    keys("revoke", str(rows[-1]["key"]))
    head, only = keys("list").splitlines()
    assert not opens(new) and head.startswith("key  account  name") and "  never  " in only
    found = AccountRecord.objects.filter(by=f"os:{getpass.getuser()}", auth="shell").values_list("action", flat=True)
    assert list(found).count("key_issued") == 3 and "key_revoked" in found


def test_a_refused_key_names_the_argument_and_changes_nothing() -> None:
    Group.objects.get_or_create(name="integrator")
    create("--account", "ci", "--name", "deploy", "--create-account", "integrator")
    User.objects.create_user("gone", is_active=False)
    for more, why in [
        (["--account", "cy", "--name", "x"], "--account: no account is named 'cy'"),
        (["--account", "gone", "--name", "x"], "--account: 'gone' is closed"),
        (["--account", "ci", "--name", "deploy"], "--name: 'ci' has a valid key named 'deploy'"),
        (["--account", "ci", "--name", "a\nb"], "--name: give a name"),
        (["--account", "ci", "--name", "x", "--expires", "90"], "--expires: '90' is not between"),
        (["--account", "ci", "--name", "x", "--expires", "0d"], "--expires: '0d' is not between"),
        (["--account", "ci", "--name", "x", "--expires", "366d"], "--expires: '366d' is not between"),
        (["--account", "new", "--name", "x", "--create-account", "chef"], "--create-account: There is no role 'chef'"),
        (["--account", "CI", "--name", "x", "--create-account", "integrator"], "The user name 'CI' is taken"),
        (["--account", "\u0430dm", "--name", "x", "--create-account", "integrator"], "A user name must be unambiguous"),
    ]:
        with pytest.raises(CommandError) as refused:
            create(*more)
        assert str(refused.value).startswith(why) and "\n" not in str(refused.value), more
        assert refused.value.returncode == 2, more
    assert ApiKey.objects.count() == 1 and User.objects.count() == 2


def test_the_bootstrap_key_is_issued_once_from_a_file(tmp_path: Path) -> None:
    Group.objects.get_or_create(name="integrator")
    token, file = f"da_{'x' * 43}", tmp_path / "key"
    for content, wanted, why in [
        (token, "ci:integrator", "must be ACCOUNT:ROLE:FILE"),
        (token, "ci:integrator:/nowhere", "/nowhere can't be read"),
        ("da_short", f"ci:integrator:{file}", "contains no key"),
        (token, f"ci:chef:{file}", "There is no role 'chef'"),
        (token, f"\u0430dm:integrator:{file}", "A user name must be unambiguous"),
    ]:
        file.write_text(content)
        with pytest.raises(EnvironmentProblem, match=why):
            bootstrap.issue(wanted)
        assert not User.objects.exists() and not ApiKey.objects.exists()
    file.write_text(f"{token}\n")
    assert bootstrap.issue(f"ci:integrator:{file}")
    assert Client().get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert ("key_issued", "system:bootstrap") in AccountRecord.objects.values_list("action", "by")
    keys("revoke", str(ApiKey.objects.get().pk))
    assert not bootstrap.issue(f"other:integrator:{file}") and ApiKey.objects.count() == 1
