"""`manage.py keys create`: issue an API key without a browser, for set-up by scripts."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from durableagents.identity import links
from durableagents.identity.auth import MOST_DAYS, issue_key, own_keys
from durableagents.identity.rights import known_roles, unknown_role
from ledger.acting import acting
from ledger.clock import database_now
from ledger.errors import DurableAgentsError
from ledger.four_eyes.known import is_guarded
from runs.management.shell import whoever

_DURATION = re.compile(r"([0-9]{1,5})([hd])", re.ASCII)
MAX_NAME = 100


class Command(BaseCommand):
    help = "Issue an API key for an account. It is printed once and can't be read again."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        create = parser.add_subparsers(dest="verb", required=True).add_parser("create", help=self.help)
        create.add_argument("--account", required=True, help="user name of the account that the key acts as")
        create.add_argument("--name", required=True, help="what uses the key; unique among the account's valid keys")
        create.add_argument("--expires", default=f"{MOST_DAYS}d", help="hours or days: 12h, 90d (default: %(default)s)")
        create.add_argument(
            "--create-account", nargs="+", metavar="ROLE", help="make the account, without a password, with these roles"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with acting(whoever(), "manage.py keys create"):
                token = _create(options["account"], options["name"], options["expires"], options["create_account"])
        except DurableAgentsError as refusal:
            raise CommandError(refusal.detail, returncode=2) from None
        except ValidationError as refusal:
            raise CommandError(" ".join(refusal.messages), returncode=2) from None
        self.stdout.write(token)


@transaction.atomic
def _create(account: str, name: str, expires: str, roles: Collection[str] | None) -> str:
    lives = _duration(expires)
    if not name.isprintable() or not name.strip() or len(name) > MAX_NAME:
        raise _refused(f"--name: give a name of 1 to {MAX_NAME} printable characters")
    user = _existing(account) if roles is None else _new_account(account, roles)
    if own_keys(user).filter(name=name).exists():
        raise _refused(
            f"--name: {account!r} has a valid key named {name!r}; revoke it under /admin/ or use another name"
        )
    return issue_key(user, name, expires_at=database_now() + lives)


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    unit = timedelta(hours=1) if text.endswith("h") else timedelta(days=1)
    lives = unit * int(match[1]) if match else None
    if lives is None or not timedelta(0) < lives <= timedelta(days=MOST_DAYS):
        raise _refused(f"--expires: {text[:20]!r} is not between 1h and {MOST_DAYS}d; write hours or days, such as 90d")
    return lives


def _existing(account: str) -> User:
    # Locked, so that of two commands with one key name the second sees the first.
    user = User.objects.select_for_update().filter(username=account).first()
    if user is None:
        raise _refused(f"--account: no account is named {account!r}; make it with --create-account ROLE")
    if not user.is_active:
        raise _refused(f"--account: {account!r} is closed; open it under /admin/ first")
    return user


def _new_account(account: str, roles: Collection[str]) -> User:
    if problem := unknown_role(roles, known_roles()):
        raise _refused(f"--create-account: {problem}")
    if is_guarded("roles"):
        raise _refused("--create-account: two people give roles here; invite the account in the console")
    user = User(username=links.free_name(account))
    user.set_unusable_password()
    user.save(force_insert=True)
    user.groups.set(Group.objects.filter(name__in=roles))
    return user


def _refused(message: str) -> CommandError:
    return CommandError(message, returncode=2)
