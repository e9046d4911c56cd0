"""From the first proof (password, provider, the demo's button) to a session. There is no session before all required
factors: meanwhile the browser keeps the pending user for ten minutes, and every page treats it as anonymous."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth import login, logout
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.urls import reverse
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme

from durableagents.signin import factors
from ledger.accounts import ACCOUNT
from ledger.actors import Actor
from ledger.protected import check
from ledger.web.roles import HAS_FACTOR, PROVED_BY, STRENGTH, needs_factor
from runs.engine.gating.proof import PASSWORD

WAITS_SECONDS = 600
_AT_THE_DOOR = "at_the_door"
SESSION, SSO = "session", "session+sso"


@dataclass(frozen=True, slots=True)
class Caller:
    """A user whose first proof was valid. `sealed` is the factor they are setting up."""

    user: User
    strength: str
    next: str
    sealed: str = ""

    def acting(self, request: HttpRequest) -> Actor:
        """Return the actor of records before sign-in."""
        address = request.META.get("REMOTE_ADDR", "")
        return Actor("user", self.user.get_username(), auth=self.strength, address=address, person=self.user.pk)


def proceed(
    request: HttpRequest, user: User, *, next_: str, strength: str = SESSION, has_second_factor: bool = False
) -> str:
    """Return where to continue after a first proof. `has_second_factor`: it included one. Raises ChangedOutside."""
    check(ACCOUNT, user.pk)
    logout(request)  # removes everything of the previous user's session
    if not has_second_factor:
        where = "sign_in_code" if factors.has_factor(user) else "sign_in_factor" if needs_factor(user) else ""
        if where:
            _keep(
                request,
                {
                    "user": user.pk,
                    "hash": user.get_session_auth_hash(),
                    "at": time.time(),
                    "strength": strength,
                    "next": next_,
                },
            )
            request.session.set_expiry(WAITS_SECONDS)
            return reverse(where)
    let_in(request, user, strength=strength, has_factor=has_second_factor)
    return next_


def caller(request: HttpRequest) -> Caller | None:
    """Return the pending user; None if too old, closed, or with a changed password."""
    kept = request.session.get(_AT_THE_DOOR)
    if not isinstance(kept, dict) or not 0 <= time.time() - kept["at"] <= WAITS_SECONDS:
        return None
    user = User.objects.filter(pk=kept["user"], is_active=True).first()
    if user is None or not constant_time_compare(kept["hash"], user.get_session_auth_hash()):
        return None
    return Caller(user, kept["strength"], kept["next"], kept.get("sealed", ""))


def keep_draft(request: HttpRequest, sealed: str) -> None:
    """Keep the secret shown for set-up until it is complete."""
    _keep(request, {**request.session[_AT_THE_DOOR], "sealed": sealed})


def let_in(request: HttpRequest, user: User, *, strength: str, has_factor: bool) -> None:
    """Begin a session with its strength. Raises ChangedOutside, also if factors were removed from outside."""
    check(ACCOUNT, user.pk)
    request.session.pop(_AT_THE_DOOR, None)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    request.session[STRENGTH] = strength
    request.session[HAS_FACTOR] = has_factor
    request.session[PROVED_BY] = strength.rpartition("+")[2] if "+" in strength else PASSWORD


def grown(request: HttpRequest, kind: str) -> None:
    """Raise the session's strength after a second factor, under a new key."""
    first = SSO if "+sso" in str(request.session.get(STRENGTH, "")) else SESSION
    request.session[STRENGTH] = f"{first}+{kind}"
    request.session[HAS_FACTOR] = True
    request.session.cycle_key()


def shrunk(request: HttpRequest) -> None:
    """Lower the session's strength after a factor's removal; if one is required, the session becomes invalid."""
    request.session[STRENGTH] = SSO if "+sso" in str(request.session.get(STRENGTH, "")) else SESSION
    request.session[HAS_FACTOR] = False


def _keep(request: HttpRequest, what: dict[str, Any]) -> None:
    request.session[_AT_THE_DOOR] = what


def next_of(request: HttpRequest) -> str:
    """Return where to continue: a path on this site. Others could lead elsewhere or be taken for a view's name."""
    wanted = request.POST.get("next") or request.GET.get("next") or "/"
    is_here = wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, allowed_hosts=None)
    return wanted if is_here else "/"
