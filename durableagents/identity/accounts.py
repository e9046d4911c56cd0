"""Accounts: who changes them is on record, how passwords are kept, and where the administrator's pages hang.

The record itself is written by triggers (`sql/0002_accounts.sql`), so that nothing passes it by; here they are told who
acts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, TypeVar, cast

from django.contrib.admin import AdminSite
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.core.exceptions import BadRequest
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponseBase

from ledger.actors import Actor
from ledger.web.roles import actor

Shown = TypeVar("Shown", bound=Callable[..., HttpResponseBase])
_SAY = "SELECT set_config('durableagents.actor', %s, true)"
_ROW = re.compile(r"[0-9]{1,19}", re.ASCII)
_CHANGES_NOTHING = ("GET", "HEAD", "OPTIONS")


@contextmanager
def acting(by: Actor) -> Iterator[None]:
    """What is done to accounts inside is on record as this actor's. One transaction: what fails has changed nothing."""
    actor = json.dumps({"by": by.ref, "person": by.person, "auth": by.auth, "address": by.address})
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_SAY, [actor])
        yield
        cursor.execute(_SAY, [""])  # a transaction around this one goes on as nobody


class Site(AdminSite):
    """The administrator's pages: whatever they change, they say who did it."""

    def admin_view(self, view: Shown, cacheable: bool = False) -> Shown:
        inner = super().admin_view(view, cacheable)

        def recorded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if self.has_permission(request):
                _refuse_unreadable(request)
            if request.method in _CHANGES_NOTHING or not request.user.is_authenticated:
                return inner(request, *args, **kwargs)
            with acting(actor(request, "")):
                return inner(request, *args, **kwargs)

        return cast(Shown, update_wrapper(recorded, inner))


def _refuse_unreadable(request: HttpRequest) -> None:
    """Raises BadRequest for what Django's lists hand to the database as it came: a NUL in a filter, rows by what is no
    number."""
    if any("\x00" in text for name, given in request.GET.lists() for text in (name, *given)):
        raise BadRequest("The query string holds a NUL character.")
    if request.method == "POST" and not all(map(_ROW.fullmatch, request.POST.getlist(ACTION_CHECKBOX_NAME))):
        raise BadRequest("The form chooses rows by what is no number.")


class Argon2(Argon2PasswordHasher):
    """Argon2id with the memory that OWASP's password storage cheat sheet asks for: Django's 100 MiB a try would be a
    way to fill the machine."""

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1
