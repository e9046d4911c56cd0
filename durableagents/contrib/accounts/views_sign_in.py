"""Pages between the first proof and the session, and sign-in by passkeys and providers."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views import View

from durableagents.contrib.accounts import again, door, factors, passkeys, signed_in
from durableagents.contrib.accounts import provider_links as links
from durableagents.contrib.accounts.views_ways import LINKING, named
from durableagents.identity import sign_in, throttle
from durableagents.identity.sign_in import next_of
from durableagents.providers import OidcProvider
from ledger.errors import DurableAgentsError
from ledger.web.roles import actor

# There is no secret to guess here. The limit bounds the cost of verification.
_tries = throttle.Allowance("sign-in by passkey", limit=30, window_seconds=300)


def refused(request: HttpRequest, refusal: DurableAgentsError) -> HttpResponse:
    """Return the page of a refused sign-in."""
    response = render(request, "refused.html", {"refusal": refusal}, status=refusal.status)
    response["Cache-Control"] = "no-store"
    return again.with_retry(response, refusal)


class AtTheDoor(View):
    """Base of pages that redirect to sign-in if no sign-in is pending."""

    template = ""
    http_method_names = ["get", "head", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        self.caller = door.caller(request)
        if self.caller is None:
            return redirect("login")
        return super().dispatch(request, *args, **kwargs)

    def show(self, request: HttpRequest, context: dict[str, Any], refusal: DurableAgentsError | None) -> HttpResponse:
        context |= {"caller": self.caller, "told": refusal.detail if refusal else ""}
        response = render(request, self.template, context, status=refusal.status if refusal else 200)
        response["Cache-Control"] = "no-store"
        return again.with_retry(response, refusal)


class Code(AtTheDoor):
    """Ask for a second factor or a recovery code."""

    template = "accounts/code.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._form(request, None)

    def post(self, request: HttpRequest) -> HttpResponse:
        caller = self.caller
        assert caller is not None
        try:
            kind = self._shown(request)
        except DurableAgentsError as refusal:
            return self._form(request, refusal)
        door.let_in(request, caller.user, strength=f"{caller.strength}+{kind}")
        return redirect(caller.next)

    def _shown(self, request: HttpRequest) -> str:
        """Check the factor that was given and return its kind.

        Raises the same errors as `passkeys.check` and `factors.check`.
        """
        assert self.caller is not None
        user, given = self.caller.user, request.POST
        if given.get(again.PASSKEY):
            passkeys.check(user, given.get(again.CHALLENGE, ""), given[again.PASSKEY], _terms(user))
            return passkeys.PASSKEY
        return factors.check(user, given.get("code", ""), by=self.caller.acting(request))

    def _form(self, request: HttpRequest, refusal: DurableAgentsError | None) -> HttpResponse:
        assert self.caller is not None
        user = self.caller.user
        return self.show(request, again.passkey_to_show(user, _terms(user)), refusal)


def _terms(user: User) -> dict[str, Any]:
    return passkeys.things(passkeys.SIGN_IN, user.pk)


class PasskeySignIn(View):
    """Sign in by a passkey alone, since the device verified its holder.

    GET returns a fresh challenge for pages that have been open for a long time.
    """

    http_method_names = ["get", "post"]

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            told: dict[str, str] = passkeys.button_data(*passkeys.to_use(passkeys.things(passkeys.SIGN_IN)))
        except DurableAgentsError as refusal:
            told = {"problem": refusal.detail}
        response = JsonResponse(told)
        response["Cache-Control"] = "no-store"
        return response

    def post(self, request: HttpRequest) -> HttpResponse:
        given, address = request.POST, throttle.network_of(request.META.get("REMOTE_ADDR", ""))
        try:
            throttle.count(_tries, address)
            user = passkeys.who_signs_in(given.get(again.PASSKEY, ""))
            passkeys.check(
                user, given.get(again.CHALLENGE, ""), given[again.PASSKEY], passkeys.things(passkeys.SIGN_IN)
            )
        except DurableAgentsError as refusal:
            return refused(request, refusal)
        throttle.forgive(_tries, address)
        strength = f"{sign_in.SESSION}+{passkeys.PASSKEY}"
        return redirect(
            sign_in.proceed(request, user, next_=next_of(request), strength=strength, has_second_factor=True)
        )


class FirstFactor(AtTheDoor):
    """Set up the second factor that the user's role requires, and sign in."""

    template = "accounts/first_factor.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._form(request, None)

    def post(self, request: HttpRequest) -> HttpResponse:
        caller = self.caller
        assert caller is not None
        if not caller.sealed:
            return redirect("sign_in_factor")
        try:
            codes = factors.set_up(caller.user, caller.sealed, request.POST.get("code", ""), by=caller.acting(request))
        except DurableAgentsError as refusal:
            return self._form(request, refusal)
        door.let_in(request, caller.user, strength=f"{caller.strength}+{factors.TOTP}")
        signed_in.end_elsewhere(caller.user.pk, request)  # ends sessions that began with the first proof alone
        return self.show(request, {"codes": codes, "next": caller.next}, None)

    def _form(self, request: HttpRequest, refusal: DurableAgentsError | None) -> HttpResponse:
        assert self.caller is not None
        if factors.has_factor(self.caller.user):  # the factor was set up meanwhile in another window
            return redirect("login")
        draft = factors.draft(self.caller.user, self.caller.sealed)
        door.keep_draft(request, draft.sealed)
        return self.show(request, {"draft": draft}, refusal)


# Each request costs a call to the provider and occupies a thread.
begun = throttle.Allowance("sign-in by a provider", limit=20, window_seconds=300)


class Sso(View):
    """Base of single sign-on pages, which show errors on a page of their own. After an error nobody is signed in."""

    http_method_names = ["get"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            response = super().dispatch(request, *args, **kwargs)
        except DurableAgentsError as refusal:
            response = refused(request, refusal)
        response["Cache-Control"] = "no-store"
        return response


class Begin(Sso):
    """Redirect to the provider. This page may be a GET, since a forged link could only begin a sign-in."""

    def get(self, request: HttpRequest, provider: str) -> HttpResponse:
        from durableagents.contrib.accounts import oidc  # imported here because it is loaded only when used

        one = named(provider)
        linking = None
        if request.user.is_authenticated:
            if request.session.get(LINKING) != one.id or not again.reauthenticated(request):
                request.session.pop(LINKING, None)
                return redirect(next_of(request))
            linking = request.user.pk
        throttle.count(begun, throttle.network_of(request.META.get("REMOTE_ADDR", "")))
        return oidc.begin(request, one, next_=next_of(request), linking=linking)


class Callback(Sso):
    """Handle the return from the provider."""

    def get(self, request: HttpRequest, provider: str) -> HttpResponse:
        from durableagents.contrib.accounts import oidc

        one = named(provider)
        claims, next_, linking = oidc.finish(request, one)
        if linking is not None:
            return self._link(request, one, claims, linking)
        address = request.META.get("REMOTE_ADDR", "")
        user = links.signed_in_by(one, claims, address=address, strength=door.SSO)
        return redirect(
            sign_in.proceed(request, user, next_=next_, strength=door.SSO, has_second_factor=one.has_second_factor)
        )

    def _link(self, request: HttpRequest, provider: OidcProvider, claims: dict[str, Any], asked: int) -> HttpResponse:
        wanted = request.session.pop(LINKING, None)
        if wanted != provider.id or not request.user.is_authenticated or request.user.pk != asked:
            return redirect("login")
        links.link(provider, claims, request.user, by=actor(request, ""))
        messages.success(request, f"You can now sign in with {provider.name}.", extra_tags="ok")
        return redirect("second_factor")
