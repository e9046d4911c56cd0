"""Sign in or link by a provider: out and back."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views import View

from durableagents.contrib.accounts import again, door
from durableagents.contrib.accounts import provider_links as links
from durableagents.contrib.accounts.views_factor import LINKING, named
from durableagents.identity import sign_in, throttle
from durableagents.identity.sign_in import next_of
from durableagents.providers import OidcProvider
from ledger.errors import DurableAgentsError
from ledger.web.roles import actor

# Each costs a call to the provider, and a thread meanwhile.
begun = throttle.Allowance("sign-in by a provider", limit=20, window_seconds=300)


class Sso(View):
    """Shows errors on its own page; nobody is signed in then."""

    http_method_names = ["get"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            response = super().dispatch(request, *args, **kwargs)
        except DurableAgentsError as refusal:
            response = render(request, "refused.html", {"refusal": refusal}, status=refusal.status)
            if isinstance(refusal, throttle.TooManyAttempts):
                response["Retry-After"] = str(refusal.wait_seconds)
        response["Cache-Control"] = "no-store"
        return response


class Begin(Sso):
    """Redirect to the provider. A GET link: a forged one could only begin."""

    def get(self, request: HttpRequest, provider: str) -> HttpResponse:
        from durableagents.contrib.accounts import oidc

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
        came = oidc.finish(request, one)
        if came.linking is not None:
            return self._link(request, one, came.claims, came.linking)
        address = request.META.get("REMOTE_ADDR", "")
        user = links.signed_in_by(one, came.claims, address=address, strength=door.SSO)
        return redirect(
            sign_in.proceed(request, user, next_=came.next, strength=door.SSO, has_second_factor=one.has_second_factor)
        )

    def _link(self, request: HttpRequest, provider: OidcProvider, claims: dict[str, Any], asked: int) -> HttpResponse:
        wanted = request.session.pop(LINKING, None)
        if wanted != provider.id or not request.user.is_authenticated or request.user.pk != asked:
            return redirect("login")
        links.link(provider, claims, request.user, by=actor(request, ""))
        messages.success(request, f"You can now sign in with {provider.name}.", extra_tags="ok")
        return redirect("second_factor")
