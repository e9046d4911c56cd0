"""Pages of one's own second factor and linked sign-ins."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.accounts import again, door, factors, passkeys, signed_in, webauthn
from durableagents.contrib.accounts import provider_links as links
from durableagents.contrib.accounts.own_password import OwnPage, OwnPassword
from durableagents.identity.throttle import TooManyAttempts
from durableagents.providers import OidcProvider
from ledger.errors import DurableAgentsError, NotFound
from ledger.web.roles import actor, needs_factor

_DRAFT = "factor_draft"
LINKING = "linking"


def sections(request: HttpRequest) -> dict[str, Any]:
    """Return the context of `account/second_factor.html` and `account/sign_ins.html`. Raises FactorUnreadable."""
    user = who(request)
    try:
        no_passkeys = webauthn.site() and ""
    except webauthn.PasskeysUnavailable as why:
        no_passkeys = why.detail
    factor, codes_left = factors.of_account(user)
    draft = None
    if factor is None:
        draft = factors.draft(user, request.session.get(_DRAFT, ""))
        if request.session.get(_DRAFT) != draft.sealed:
            request.session[_DRAFT] = draft.sealed
    names = {one.issuer: one.name for one in settings.DURABLEAGENTS.oidc}
    linked = [
        {
            "pk": one.pk,
            "name": names.get(one.provider, one.provider),
            "subject": one.uid,
            "issuer": one.provider,
            "last_used": one.last_login,
        }
        for one in SocialAccount.objects.filter(user_id=user.pk).order_by("pk")
    ]
    known = {str(one["issuer"]) for one in linked}
    return {
        "factor": factor,
        "codes_left": codes_left,
        "draft": draft,
        "is_needed": needs_factor(user),
        "passkeys": passkeys.of_account(user),
        "no_passkeys": no_passkeys,
        "linked": linked,
        "linkable": [one for one in settings.DURABLEAGENTS.oidc if one.issuer not in known],
    }


def who(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


class OfEveryone(again.Risky, OwnPage):
    """Pages about one's own ways to sign in."""


class SecondFactor(OfEveryone):
    """Show the second factor; by POST, complete its set-up with a code."""

    template = "accounts/second_factor_page.html"
    http_method_names = ["get", "head", "post"]
    risky = "set up a second factor"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(request, sections(request))

    def post(self, request: HttpRequest) -> HttpResponse:
        user, sealed = who(request), request.session.get(_DRAFT, "")
        if not sealed:
            return redirect("second_factor")
        try:
            codes = factors.set_up(user, sealed, request.POST.get("code", ""), by=actor(request, ""))
        except DurableAgentsError as refusal:
            response = self.show(request, {**sections(request), "told": refusal.detail}, status=refusal.status)
            if isinstance(refusal, TooManyAttempts):
                response["Retry-After"] = str(refusal.wait_seconds)
            return response
        request.session.pop(_DRAFT, None)
        signed_in.end_elsewhere(user.pk, request)  # ends sessions by the password alone
        door.grown(request, factors.TOTP)
        again.proved(request, factors.TOTP)
        return self.show(request, {**sections(request), "codes": codes})


class Password(OwnPassword):
    """The password page, which first asks for the second factor, if any."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.user.is_authenticated and factors.has_factor(who(request)):
            is_proof = again.CODE in request.POST or again.PASSKEY in request.POST
            # The input is passwords, which no page shows again.
            if asked := again.asked_again(request, "change your password", keeps=False):
                return asked
            if is_proof:
                return redirect("password")
        return super().dispatch(request, *args, **kwargs)


class FactorRemovals(OfEveryone):
    """Remove the authenticator app."""

    http_method_names = ["post"]
    risky = "turn off your second factor"

    def post(self, request: HttpRequest) -> HttpResponse:
        user = who(request)
        factors.take_device_away(user, by=actor(request, ""))
        if not factors.has_factor(user):
            door.shrunk(request)
        signed_in.end_elsewhere(who(request).pk, request)  # they were signed in by the removed factor
        messages.success(request, "Authenticator app turned off.", extra_tags="ok")
        return redirect("second_factor")


class RecoveryCodes(OfEveryone):
    """Create new recovery codes."""

    template = "accounts/second_factor_page.html"
    http_method_names = ["post"]
    risky = "create new recovery codes"

    def post(self, request: HttpRequest) -> HttpResponse:
        codes = factors.renew_codes(who(request), by=actor(request, ""))
        return self.show(request, {**sections(request), "codes": codes})


class SignInLinks(OfEveryone):
    """Link a provider. The response has the link there, since forms may not lead off this site."""

    template = "accounts/linking.html"
    http_method_names = ["post"]
    risky = "link another sign-in"

    def post(self, request: HttpRequest) -> HttpResponse:
        provider = named(request.POST.get("provider", ""))
        request.session[LINKING] = provider.id
        return self.show(request, {"provider": provider})


class SignInRemovals(OfEveryone):
    """Unlink a provider."""

    http_method_names = ["post"]
    risky = "unlink a sign-in"

    def post(self, request: HttpRequest) -> HttpResponse:
        given = request.POST.get("link", "")
        if not (given.isascii() and given.isdecimal() and len(given) < 10):
            raise Http404
        try:
            links.unlink(who(request), int(given), by=actor(request, ""))
        except NotFound as gone:
            messages.error(request, gone.detail, extra_tags="bad")
        else:
            signed_in.end_elsewhere(who(request).pk, request)  # they may be signed in by the removed link
            messages.success(request, "Unlinked.", extra_tags="ok")
        return redirect("second_factor")


def named(name: str) -> OidcProvider:
    """Return a configured provider. Raises Http404."""
    found = next((one for one in settings.DURABLEAGENTS.oidc if one.id == name), None)
    if found is None:
        raise Http404
    return found
