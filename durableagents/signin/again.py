"""Showing once more who one is, before what is risky: a passkey, the second factor's code, or the password where there
is neither.

The session remembers when that was last shown. Where it is too long ago, the form that came is kept in a page that
asks, and goes from there to the same address with the proof beside it: nothing that was written is lost, nothing is
done before, and no second place decides where one goes on.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from approvals.passkeys.signed import Signed
from approvals.stepup import Answer
from durableagents.identity import throttle
from durableagents.signin import factors, passkeys
from ledger.clock import database_now
from ledger.errors import Busy, DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.problems import RETRY_AFTER_SECONDS
from ledger.web.roles import PROVED, PROVED_BY, actor
from runs.engine.gate.proof import PASSWORD as PASSWORD_SHOWN
from runs.engine.gate.proof import Wanted

WITHIN = timedelta(minutes=10)
PASSWORD, CODE, PASSKEY, CHALLENGE = "proof_password", "proof_code", "proof_passkey", "proof_challenge"
# Somebody at another's open screen must not find the password out by trying.
tries = throttle.Allowance("shown again", limit=5, window_seconds=300)
_PROOFS = (PASSWORD, CODE, PASSKEY, CHALLENGE)
_OURS = (*_PROOFS, "csrfmiddlewaretoken")


class Again(Page):
    """The page that asks. It has no address of its own."""

    template = "account/again.html"
    section = "account"


class Risky(Page):
    """A page whose POST needs a person who has lately shown who they are. `risky` ends the sentence by which they are
    asked; empty: nobody is. What is wrong with the form is said first: nobody gives a password for a refusal."""

    risky = ""

    def is_asked(self, user: User) -> bool:
        """Whether somebody is asked at all: whoever may not do it is told so at once."""
        return True

    def wrong(self, request: HttpRequest, **kwargs: Any) -> HttpResponse | None:
        """Return the page of a form that is refused whoever sends it; None where it can be sent as it is."""
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
    """They have shown just now who they are, and with what."""
    request.session[PROVED], request.session[PROVED_BY] = database_now().isoformat(), by


def reauthenticated(request: HttpRequest, within: timedelta = WITHIN) -> bool:
    """Whether this session's person has shown who they are so lately."""
    kept = request.session.get(PROVED)
    since = database_now() - datetime.fromisoformat(kept) if isinstance(kept, str) else None
    return since is not None and timedelta(0) <= since <= within


def asked_again(
    request: HttpRequest, what: str, *, within: timedelta | None = WITHIN, keeps: bool = True
) -> HttpResponse | None:
    """None where the act may go on; otherwise the answer, which asks first. `what` ends the sentence "Show once more
    who you are, to …"; `keeps` is False where what was sent is secret and must not stand in a page;
    without `within` they are asked whenever it was shown last."""
    if within is not None and reauthenticated(request, within):
        _strip(request)
        return None
    return _asked(request, what, keeps=keeps).page


def _asked(request: HttpRequest, what: str, *, keeps: bool = True, terms: dict[str, Any] | None = None) -> Answer:
    """As above; `terms` are what a passkey is to sign, where it is not just who they are."""
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
    response = page.show(request, context, status=told.status if told else 403)
    if told is not None and told.status in (429, 503):
        response["Retry-After"] = str(getattr(told, "wait_seconds", RETRY_AFTER_SECONDS))
    return Answer(response)


def passkey_to_show(user: User, terms: dict[str, Any]) -> dict[str, Any]:
    """What a page needs that asks for a factor: whether there is a device for a code, and what a passkey signs where
    the account has one that is good here."""
    told: dict[str, Any] = {"has_device": factors.has_device(user)}
    if passkeys.is_usable(user):
        told["passkey"] = passkeys.shown(*passkeys.to_use(terms, user))
    return told


def ask_to_decide(request: HttpRequest, what: str, wanted: Wanted, terms: dict[str, Any]) -> HttpResponse | None:
    """Ask whoever says yes to what needs more than that, whenever they showed it last. A passkey signs the very yes."""
    user = request.user
    assert isinstance(user, User)
    if not factors.has_factor(user) and (wanted.factor or not user.has_usable_password()):
        return None
    return _asked(request, what, terms=terms).page


def answer_to_decide(request: HttpRequest, what: str, terms: dict[str, Any]) -> Answer:
    """Look at what was shown with a decision, if anything was."""
    is_shown = any(name in request.POST for name in (PASSWORD, CODE, PASSKEY))
    return _asked(request, what, terms=terms) if is_shown and isinstance(request.user, User) else Answer()


class WrongPassword(DurableAgentsError):
    status, code, title = 422, "wrong-password", "Wrong password"

    def __init__(self) -> None:
        super().__init__("This is not your password. Nothing was done.")


def _check(request: HttpRequest, user: User, has_factor: bool, terms: dict[str, Any]) -> tuple[str, Signed | None]:
    """With what they have shown it, and what a passkey signed. Raises WrongCode, WrongPassword, TooManyAttempts, Busy,
    FactorUnreadable; and as `passkeys.check`."""
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
    """The act's own form knows nothing of the proof."""
    if not any(name in request.POST for name in _PROOFS):
        return
    rest: Any = request.POST.copy()
    for name in _PROOFS:
        rest.pop(name, None)
    request.POST = rest
