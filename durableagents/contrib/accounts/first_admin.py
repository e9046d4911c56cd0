"""Create the first administrator through a link.

The link is printed only in a shell on the server, so that nobody else can take over the console first. It works once,
for one day, and only while there is no administrator.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from durableagents.contrib.accounts import links
from durableagents.contrib.accounts.models import SetupLink
from durableagents.contrib.accounts.protected import SETUP_LINK
from durableagents.identity import names
from durableagents.identity.auth import digest
from durableagents.identity.password_check import hashed
from ledger import protected
from ledger.acting import acting
from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.errors import DurableAgentsError
from runs.management.shell import command_actor

LIVES = timedelta(days=1)
_ONE = 1


class AlreadySetUp(DurableAgentsError):
    status, code, title = 409, "already-set-up", "This installation already has an administrator"

    def __init__(self) -> None:
        super().__init__("Sign in as an administrator, or create one with `manage.py createsuperuser`.")


def is_open() -> bool:
    """Return whether there is no active administrator yet."""
    return not User.objects.filter(is_superuser=True, is_active=True).exists()


def new_link(by: Actor) -> str:
    """Return a new link for the first administrator, and invalidate earlier links. Raises AlreadySetUp."""
    token = links.token()
    link = links.address(
        "setup_claim", token
    )  # This loads all URLs, which takes seconds on a busy machine, so it is done before the transaction.
    _keep(token, by)
    return link


@transaction.atomic
def _keep(token: str, by: Actor) -> None:
    if not is_open():
        raise AlreadySetUp
    now = database_now()
    SetupLink.objects.update_or_create(
        id=_ONE, defaults={"token_hash": digest(token), "made_at": now, "expires_at": now + LIVES, "used_at": None}
    )
    acted("setup_link", by=by, subject="installation", after={"expires_at": (now + LIVES).isoformat()}, at=now)


def greeting(environment: Any) -> str:
    """Return how to create the first administrator, as text that `manage.py up` prints."""
    if is_open():
        link = new_link(command_actor())
        return f"set-up {link} works once, for one day; `manage.py setup_link` creates another"
    new = "" if environment.database_url else "; a new one takes a DURABLEAGENTS_DATA of its own"
    return f"set-up this installation already has an administrator: sign in as them{new}"


def check(token: str) -> None:
    """Check a link. Raises UnknownLink, EndedLink."""
    _usable(SetupLink.objects.filter(pk=_ONE, token_hash=digest(token)).first())


def claim(token: str, *, name: str, email: str, password: str, address: str) -> User:
    """Create the first administrator. Only one of several concurrent requests succeeds.

    Raises UnknownLink, EndedLink, NameTaken, ValidationError, Busy.
    """
    check(token)
    kept = hashed(password)  # takes a quarter of a second, so it is done before locking
    try:
        return _make(token, name, email, kept, address)
    except IntegrityError as error:
        raise names.NameTaken(name) from error


@transaction.atomic
def _make(token: str, name: str, email: str, kept: str, address: str) -> User:
    usable = _usable(SetupLink.objects.select_for_update().filter(pk=_ONE, token_hash=digest(token)).first())
    name = names.free_name(name)
    with acting(Actor("user", name, auth="token", address=address)):
        user = User(username=name, email=email, password=kept, is_staff=True, is_superuser=True)
        user.save(force_insert=True)
    usable.used_at = Now()
    usable.save(update_fields=["used_at"])
    by = Actor("user", name, auth="token", address=address, person=user.pk)
    acted("setup", by=by, subject=f"user:{name}", after={"email": email})
    return user


def _usable(row: SetupLink | None) -> SetupLink:
    if row is None:
        raise links.UnknownLink
    protected.check(SETUP_LINK, row.pk)
    if row.used_at is not None:
        raise links.EndedLink("has been used. Sign in; or, if that was not you, look at the audit list at once")
    if row.expires_at <= database_now():
        raise links.EndedLink("has expired. Run `manage.py setup_link` for another")
    if not is_open():
        raise links.EndedLink("is no longer needed: the installation has an administrator. Sign in")
    return row
