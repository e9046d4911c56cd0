"""The steps from the first proof of identity (password, provider, the demo's button) to a session.

Apps may ask for a second factor in between.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import login, logout
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme

from ledger.accounts import ACCOUNT
from ledger.protected import check
from ledger.web.roles import HAS_FACTOR, PROVED_BY, STRENGTH
from runs import features
from runs.engine.gating.proof import PASSWORD

SESSION = "session"


def proceed(
    request: HttpRequest, user: User, *, next_: str, strength: str = SESSION, has_second_factor: bool = False
) -> str:
    """Return where to continue after a first proof. Raises ChangedOutside.

    `has_second_factor`: the proof included a second factor.
    """
    check(ACCOUNT, user.pk)
    logout(request)  # removes everything of the previous user's session
    if not has_second_factor:
        for ask in features.parts_of_all(lambda each: each.second_factors):
            if where := ask(request, user, strength, next_):
                return where
    let_in(request, user, strength=strength, has_factor=has_second_factor)
    return next_


def let_in(request: HttpRequest, user: User, *, strength: str, has_factor: bool) -> None:
    """Begin a session, and record how strong its proof was.

    Raises ChangedOutside, for example if second factors were removed outside the application.
    """
    check(ACCOUNT, user.pk)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    request.session[STRENGTH] = strength
    request.session[HAS_FACTOR] = has_factor
    request.session[PROVED_BY] = strength.rpartition("+")[2] if "+" in strength else PASSWORD


def next_of(request: HttpRequest) -> str:
    """Return the path on this site where to continue.

    Other values could lead elsewhere or be taken for a view's name.
    """
    wanted = request.POST.get("next") or request.GET.get("next") or "/"
    is_here = wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, allowed_hosts=None)
    return wanted if is_here else "/"
