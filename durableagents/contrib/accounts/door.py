"""The steps between the first proof and the second factor.

No session begins before all required factors have been given. Meanwhile the browser keeps the pending user for ten
minutes, and every page treats it as anonymous.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.urls import reverse
from django.utils.crypto import constant_time_compare

from durableagents.contrib.accounts import factors
from durableagents.identity import sign_in
from durableagents.identity.sign_in import SESSION
from ledger.actors import Actor
from ledger.web.roles import HAS_FACTOR, STRENGTH, needs_factor

WAITS_SECONDS = 600
_AT_THE_DOOR = "at_the_door"
SSO = "session+sso"


@dataclass(frozen=True, slots=True)
class Caller:
    """A user whose first proof was valid. `sealed` is the encrypted factor being set up."""

    user: User
    strength: str
    next: str
    sealed: str = ""

    def acting(self, request: HttpRequest) -> Actor:
        """Return the actor for records made before sign-in."""
        address = request.META.get("REMOTE_ADDR", "")
        return Actor("user", self.user.get_username(), auth=self.strength, address=address, person=self.user.pk)


def ask(request: HttpRequest, user: User, strength: str, next_: str) -> str | None:
    """Return the URL of the page that asks for a second factor, or sets up a required one; None if neither applies."""
    where = "sign_in_code" if factors.has_factor(user) else "sign_in_factor" if needs_factor(user) else ""
    if not where:
        return None
    told = {"user": user.pk, "hash": user.get_session_auth_hash(), "strength": strength, "next": next_}
    request.session[_AT_THE_DOOR] = {**told, "at": time.time()}
    request.session.set_expiry(WAITS_SECONDS)
    return reverse(where)


def caller(request: HttpRequest) -> Caller | None:
    """Return the pending user; None if the proof is too old, the account is closed or its password was changed."""
    kept = request.session.get(_AT_THE_DOOR)
    if not isinstance(kept, dict) or not 0 <= time.time() - kept["at"] <= WAITS_SECONDS:
        return None
    user = User.objects.filter(pk=kept["user"], is_active=True).first()
    if user is None or not constant_time_compare(kept["hash"], user.get_session_auth_hash()):
        return None
    return Caller(user, kept["strength"], kept["next"], kept.get("sealed", ""))


def keep_draft(request: HttpRequest, sealed: str) -> None:
    """Keep the secret shown for set-up until the set-up is complete."""
    request.session[_AT_THE_DOOR] = {**request.session[_AT_THE_DOOR], "sealed": sealed}


def let_in(request: HttpRequest, user: User, *, strength: str) -> None:
    """Begin a session after the second factor. Raises ChangedOutside."""
    sign_in.let_in(request, user, strength=strength, has_factor=True)
    request.session.pop(_AT_THE_DOOR, None)


def grown(request: HttpRequest, kind: str) -> None:
    """Raise the session's strength after a second factor was set up, and give the session a new key."""
    shrunk(request)
    request.session[STRENGTH] += f"+{kind}"
    request.session[HAS_FACTOR] = True
    request.session.cycle_key()


def shrunk(request: HttpRequest) -> None:
    """Lower the session's strength after a factor was removed. If a factor is required, the session becomes invalid."""
    request.session[STRENGTH] = SSO if "+sso" in str(request.session.get(STRENGTH, "")) else SESSION
    request.session[HAS_FACTOR] = False
