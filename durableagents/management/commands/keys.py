"""`manage.py keys create|rotate|revoke|list`: manage API keys without a browser, for set-up by scripts."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from durableagents.identity import names
from durableagents.identity.auth import MAX_DAYS, issue_key, own_keys
from durableagents.identity.rights import known_roles, unknown_role
from durableagents.models import ApiKey
from ledger.acting import acting
from ledger.change_control import is_guarded
from ledger.clock import database_now
from ledger.errors import DurableAgentsError
from ledger.management.in_process import ApiCommand, inert
from runs.management.shell import command_actor

_DURATION = re.compile(r"([0-9]{1,5})([hd])", re.ASCII)
MAX_NAME = 100
_COLUMNS = ("key", "account", "name", "prefix", "created_at", "expires_at", "revoked_at", "last_used_at")
_WORKS = Q(revoked_at__isnull=True) & (Q(expires_at__isnull=True) | Q(expires_at__gt=Now()))


class Command(ApiCommand):
    help = "API keys: issue one for an account, replace, revoke or list them. A key is printed once."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="issue a key and print it once")
        rotate = verbs.add_parser("rotate", help="issue a key like this one and print it once; end the old one")
        rotate.add_argument("--overlap", default="0h", help="how long the old one stays valid (default: %(default)s)")
        revoke = verbs.add_parser("revoke", help="end a key now")
        for verb in (rotate, revoke):
            verb.add_argument("key", type=int, help="its number in `keys list`")
        some = verbs.add_parser("list", help="valid keys, without the secrets")
        some.add_argument("--all", action="store_true", help="also expired and revoked ones")
        some.add_argument("--json", action="store_true", help="one JSON object a line")
        create.add_argument("--account", required=True, help="user name of the account that the key acts as")
        create.add_argument("--name", required=True, help="what uses the key; unique among the account's valid keys")
        create.add_argument("--expires", default=f"{MAX_DAYS}d", help="12h, 90d (default: %(default)s)")
        rotate.add_argument("--expires", help="12h, 90d (default: when the old one would have expired)")
        create.add_argument(
            "--create-account",
            nargs="+",
            metavar="ROLE",
            help="create the account with these roles and without a password",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        verb = options["verb"]
        if verb == "list":
            for line in _listed(options):
                self.stdout.write(line)
            return
        try:
            with acting(command_actor(), f"manage.py keys {verb}"):
                match verb:
                    case "rotate":
                        message = _rotate(options["key"], options["expires"], options["overlap"])
                    case "revoke":
                        message = _revoke(options["key"])
                    case _:
                        message = _create(
                            options["account"], options["name"], options["expires"], options["create_account"]
                        )
        except DurableAgentsError as refusal:
            raise CommandError(refusal.detail, returncode=2) from None
        except ValidationError as refusal:
            raise CommandError(" ".join(refusal.messages), returncode=2) from None
        self.stdout.write(message)


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


@transaction.atomic
def _rotate(key_id: int, expires: str | None, overlap: str) -> str:
    """Issue a key that replaces this one, which then ends at once or after the overlap.

    The new key has the same name, account, budget and, unless given, end. Raises CommandError if the key was rotated
    before.
    """
    lives = None if expires is None else _duration(expires)
    longer = timedelta(0) if overlap == "0h" else _duration(overlap, "--overlap")
    old = _working(key_id)
    _existing(old.user.get_username())
    successor = own_keys(old.user).filter(name=old.name, pk__gt=old.pk).order_by("pk").last()
    if successor is not None:
        raise _refused(f"key {key_id} was already rotated: key {successor.pk} replaces it. Rotate or revoke that key")
    now = database_now()
    ends = old.expires_at if lives is None else now + lives
    if longer:
        old.expires_at = min(old.expires_at or now + longer, now + longer)
    else:
        old.revoked_at = now
    old.save(update_fields=["expires_at", "revoked_at"])
    return issue_key(old.user, old.name, expires_at=ends, budget=old.budget)


@transaction.atomic
def _revoke(key_id: int) -> str:
    key = _working(key_id)
    key.revoked_at = database_now()
    key.save(update_fields=["revoked_at"])
    return f"revoked key {key_id}, {key.name!r} of {key.user.get_username()!r}"


def _working(key_id: int) -> ApiKey:
    """Lock and return a valid key. Raises CommandError."""
    key = ApiKey.objects.select_for_update().filter(_WORKS, pk=key_id).first()
    if key is None:
        raise _refused(f"no valid key has the number {key_id}; see: manage.py keys list")
    return key


def _listed(options: dict[str, Any]) -> Iterator[str]:
    keys = ApiKey.objects.select_related("user").order_by("pk")
    if not options["json"]:
        yield "  ".join(_COLUMNS)
    for key in keys if options["all"] else keys.filter(_WORKS):
        times = (key.created_at, key.expires_at, key.revoked_at, key.last_used_at)
        texts = (key.pk, key.user.get_username(), key.name, key.prefix)
        row = dict(zip(_COLUMNS, (*texts, *(_iso(at) for at in times)), strict=True))
        yield json.dumps(row) if options["json"] else "  ".join(inert(value or "never") for value in row.values())


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")


def _duration(text: str, option: str = "--expires") -> timedelta:
    match = _DURATION.fullmatch(text)
    unit = timedelta(hours=1) if text.endswith("h") else timedelta(days=1)
    lives = unit * int(match[1]) if match else None
    if lives is None or not timedelta(0) < lives <= timedelta(days=MAX_DAYS):
        raise _refused(f"{option}: {text[:20]!r} is not between 1h and {MAX_DAYS}d; write hours or days, such as 90d")
    return lives


def _existing(account: str) -> User:
    # The lock makes the second of two concurrent commands with the same key name see the key of the first.
    user = User.objects.select_for_update().filter(username=account).first()
    if user is None:
        raise _refused(f"--account: no account is named {account!r}; create it with --create-account ROLE")
    if not user.is_active:
        raise _refused(f"--account: {account!r} is closed; open it under /admin/ first")
    return user


def _new_account(account: str, roles: Collection[str]) -> User:
    if problem := unknown_role(roles, known_roles()):
        raise _refused(f"--create-account: {problem}")
    if is_guarded("roles"):
        raise _refused("--create-account: two people give roles here; invite the account in the console")
    user = User(username=names.free_name(account))
    user.set_unusable_password()
    user.save(force_insert=True)
    user.groups.set(Group.objects.filter(name__in=roles))
    return user


def _refused(message: str) -> CommandError:
    return CommandError(message, returncode=2)
