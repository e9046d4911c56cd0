"""From the first proof (a password, an issuer's word, the demo's button) to a session.

Nobody has a session before all that is asked of them was shown: until then the browser keeps who is at the door, for
ten minutes, and every page takes it for a stranger's.
"""

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
from runs.engine.gate.proof import PASSWORD

WAITS_SECONDS = 600
_AT_THE_DOOR = "at_the_door"
SESSION, SSO = "session", "session+sso"


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose first proof was right. `sealed` is the factor that they are shown to set up."""

    user: User
    strength: str
    next: str
    sealed: str = ""

    def acting(self, request: HttpRequest) -> Actor:
        """How a record names them before they are in."""
        address = request.META.get("REMOTE_ADDR", "")
        return Actor("user", self.user.get_username(), auth=self.strength, address=address, person=self.user.pk)


def proceed(
    request: HttpRequest, user: User, *, next_: str, strength: str = SESSION, has_second_factor: bool = False
) -> str:
    """Return where to go on after a right first proof. `has_second_factor` says that it was one of two. Raises
    ChangedOutside."""
    check(ACCOUNT, user.pk)
    logout(request)  # nothing of the person before stays in the session
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
    """Who is at the door; nobody where it was too long ago, or the account is closed or has another password since."""
    kept = request.session.get(_AT_THE_DOOR)
    if not isinstance(kept, dict) or not 0 <= time.time() - kept["at"] <= WAITS_SECONDS:
        return None
    user = User.objects.filter(pk=kept["user"], is_active=True).first()
    if user is None or not constant_time_compare(kept["hash"], user.get_session_auth_hash()):
        return None
    return Caller(user, kept["strength"], kept["next"], kept.get("sealed", ""))


def keep_draft(request: HttpRequest, sealed: str) -> None:
    """What the caller is shown to set up stays the same until they have."""
    _keep(request, {**request.session[_AT_THE_DOOR], "sealed": sealed})


def let_in(request: HttpRequest, user: User, *, strength: str, has_factor: bool) -> None:
    """Begin a session, which says how. Raises ChangedOutside: also where the account's factors were taken away."""
    check(ACCOUNT, user.pk)
    request.session.pop(_AT_THE_DOOR, None)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    request.session[STRENGTH] = strength
    request.session[HAS_FACTOR] = has_factor
    request.session[PROVED_BY] = strength.rpartition("+")[2] if "+" in strength else PASSWORD


def grown(request: HttpRequest, kind: str) -> None:
    """The session's person has shown a second factor since: under a new key, for it may do more."""
    first = SSO if "+sso" in str(request.session.get(STRENGTH, "")) else SESSION
    request.session[STRENGTH] = f"{first}+{kind}"
    request.session[HAS_FACTOR] = True
    request.session.cycle_key()


def shrunk(request: HttpRequest) -> None:
    """The session's second factor is gone: where one is needed, so is the session."""
    request.session[STRENGTH] = SSO if "+sso" in str(request.session.get(STRENGTH, "")) else SESSION
    request.session[HAS_FACTOR] = False


def _keep(request: HttpRequest, what: dict[str, Any]) -> None:
    request.session[_AT_THE_DOOR] = what


def next_of(request: HttpRequest) -> str:
    """Where to go on: an address on this site, from its root. Anything else would be one of somebody else's, or taken
    for the name of a page."""
    wanted = request.POST.get("next") or request.GET.get("next") or "/"
    is_here = wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, allowed_hosts=None)
    return wanted if is_here else "/"
