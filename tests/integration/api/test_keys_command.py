"""`manage.py keys create`: prints a working API key once; refusals are one line."""

from __future__ import annotations

import getpass
from io import StringIO

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client

from durableagents.models import ApiKey
from ledger.models import AccountRecord

pytestmark = pytest.mark.django_db


def create(*more: str) -> str:
    out = StringIO()
    call_command("keys", "create", *more, stdout=out)
    return out.getvalue().strip()


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
        (["--account", "CI", "--name", "x", "--create-account", "integrator"], "There is an account named 'CI'"),
        (["--account", "\u0430dm", "--name", "x", "--create-account", "integrator"], "A user name must read"),
    ]:
        with pytest.raises(CommandError) as refused:
            create(*more)
        assert str(refused.value).startswith(why) and "\n" not in str(refused.value), more
        assert refused.value.returncode == 2, more
    assert ApiKey.objects.count() == 1 and User.objects.count() == 2
