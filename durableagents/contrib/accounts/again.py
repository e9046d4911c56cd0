"""Ask for reauthentication before risky acts: by passkey or second factor, else by password."""

# The session remembers the last authentication. If that is too old, a page asks for a new one and keeps the form, which
# is then sent to the same URL together with the proof. So no input is lost, and nothing happens before the
# authentication.

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from durableagents.contrib.accounts import factors, passkeys
from durableagents.contrib.accounts.assertions import Signed
from durableagents.identity import throttle
from ledger.clock import database_now
from ledger.errors import Busy, DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.problems import RETRY_AFTER_SECONDS
from ledger.web.roles import PROVED, PROVED_BY, actor
from runs.engine.gating.proof import PASSWORD as PASSWORD_SHOWN

WITHIN = timedelta(minutes=10)
PASSWORD, CODE, PASSKEY, CHALLENGE = "proof_password", "proof_code", "proof_passkey", "proof_challenge"
# A stranger at an unlocked screen must not be able to guess the password.
tries = throttle.Allowance("shown again", limit=5, window_seconds=300)
_PROOFS = (PASSWORD, CODE, PASSKEY, CHALLENGE)
_OURS = (*_PROOFS, "csrfmiddlewaretoken")


class Again(Page):
    """The page that asks for authentication. It has no URL of its own."""

    template = "accounts/again.html"
    section = "account"


class Risky(Page):
    """A page whose POST needs recent authentication.

    `risky` completes "Confirm your identity to …"; if empty, no authentication is required. Errors in the form are
    reported first, so that nobody authenticates for a form that is then refused anyway.
    """

    risky = ""

    def is_asked(self, user: User) -> bool:
        """Return whether to ask for authentication. Users without the right are refused without being asked."""
        return True

    def wrong(self, request: HttpRequest, **kwargs: Any) -> HttpResponse | None:
        """Return the page for a form that is invalid for every user; None if it is valid."""
        return None

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        user = request.user
        if self.risky and request.method == "POST" and isinstance(user, User) and self.is_asked(user):
            try:
                answer = self.wrong(request, **kwargs) or asked_again(request, self.risky)
            except DurableAgentsError as error:
                answer = self.trouble(request, error)
            if answer is not None:
                return answer
        return super().dispatch(request, *args, **kwargs)


def proved(request: HttpRequest, by: str) -> None:
    """Record in the session that its user has just authenticated, and by what means."""
    request.session[PROVED], request.session[PROVED_BY] = database_now().isoformat(), by


def reauthenticated(request: HttpRequest) -> bool:
    """Return whether the session's user has authenticated recently enough."""
    kept = request.session.get(PROVED)
    since = database_now() - datetime.fromisoformat(kept) if isinstance(kept, str) else None
    return since is not None and timedelta(0) <= since <= WITHIN


def asked_again(request: HttpRequest, what: str, keeps: bool = True) -> HttpResponse | None:
    """Return the response that asks for authentication; None if the last one is recent, so that the act may continue.

    `what` completes "Confirm your identity to …". `keeps` is False for secret input, which must not appear in a page.
    """
    if reauthenticated(request):
        _strip(request)
        return None
    return ask_for(request, what, keeps=keeps).page


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of asking for authentication.

    `page` is the response if the proof was missing or wrong. Otherwise it is None, and the form can be processed;
    `signed` is the passkey's signature if a passkey was used.
    """

    page: HttpResponse | None = None
    signed: Signed | None = None


def ask_for(request: HttpRequest, what: str, *, keeps: bool = True, terms: dict[str, Any] | None = None) -> Answer:
    """Ask for authentication. `terms` are the terms that a passkey signs, if it confirms more than the identity."""
    user = request.user
    assert isinstance(user, User)
    has_factor = factors.has_factor(user)
    terms = terms or passkeys.things(passkeys.AGAIN, user.pk)
    told: DurableAgentsError | None = None
    given = (CODE, PASSKEY) if has_factor else (PASSWORD,)
    if request.method == "POST" and any(request.POST.get(name) for name in given):
        try:
            by, signed = _check(request, user, has_factor, terms)
        except DurableAgentsError as refusal:
            told = refusal
        else:
            proved(request, by)
            _strip(request)
            return Answer(signed=signed)
    kept = [] if not keeps or request.method != "POST" else _kept(request)
    context = {
        "what": what,
        "has_factor": has_factor,
        "has_password": user.has_usable_password(),
        "kept": kept,
        "told": told,
        "where": request.get_full_path(),
        **passkey_to_show(user, terms),
    }
    page = Again()
    page.setup(request)
    return Answer(with_retry(page.show(request, context, status=told.status if told else 403), told))


def with_retry(response: HttpResponse, refusal: DurableAgentsError | None) -> HttpResponse:
    """Add a Retry-After header to the response if the refusal is due to throttling or overload."""
    if refusal is not None and refusal.status in (429, 503):
        response["Retry-After"] = str(getattr(refusal, "wait_seconds", RETRY_AFTER_SECONDS))
    return response


def passkey_to_show(user: User, terms: dict[str, Any]) -> dict[str, Any]:
    """Return the context of a page that asks for a factor.

    It tells whether the user has an authenticator app, and contains the options for passkeys if they can be used.
    """
    told: dict[str, Any] = {"has_device": factors.has_device(user)}
    if passkeys.is_usable(user):
        told["passkey"] = passkeys.button_data(*passkeys.to_use(terms, user))
    return told


class WrongPassword(DurableAgentsError):
    """The password is wrong. Nothing was done."""

    status, code, title = 422, "wrong-password", "Wrong password"

    def __init__(self) -> None:
        super().__init__("Wrong password. Nothing was changed.")


def _check(request: HttpRequest, user: User, has_factor: bool, terms: dict[str, Any]) -> tuple[str, Signed | None]:
    """Check the proof; return how the user authenticated, and a passkey's signature.

    Raises WrongCode, WrongPassword, TooManyAttempts, Busy, FactorUnreadable, and the errors of `passkeys.check`.
    """
    if has_factor and request.POST.get(PASSKEY):
        signed = passkeys.check(user, request.POST.get(CHALLENGE, ""), request.POST[PASSKEY], terms)
        return passkeys.PASSKEY, signed
    if has_factor:
        return factors.check(user, request.POST[CODE], by=actor(request, "")), None
    throttle.count(tries, str(user.pk))
    try:
        found = authenticate(request, username=user.get_username(), password=request.POST[PASSWORD])
    except Busy:
        throttle.forgive(tries, str(user.pk))
        raise
    if found is None or found.pk != user.pk:
        raise WrongPassword
    throttle.forgive(tries, str(user.pk))
    return PASSWORD_SHOWN, None


def _kept(request: HttpRequest) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, all_ in request.POST.lists() if name not in _OURS for value in all_]


def _strip(request: HttpRequest) -> None:
    """Remove the proof from the request, because the act's form has no such fields."""
    if not any(name in request.POST for name in _PROOFS):
        return
    rest: Any = request.POST.copy()
    for name in _PROOFS:
        rest.pop(name, None)
    request.POST = rest
