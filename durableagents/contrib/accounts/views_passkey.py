"""Acts on one's own passkeys; the page of the second factor lists them."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.accounts import again, door, factors, passkeys, signed_in
from durableagents.contrib.accounts.views_factor import OfEveryone, sections, who
from ledger.errors import DurableAgentsError
from ledger.web.roles import actor


class NewPasskey(OfEveryone):
    """The page whose button creates a passkey. By POST, since it needs recent authentication."""

    template = "accounts/second_factor_page.html"
    http_method_names = ["post"]
    risky = "add a passkey"

    def post(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: DurableAgentsError | None = None) -> HttpResponse:
        """Show the page, with a refusal."""
        name = request.POST.get("name", "")[: passkeys.MAX_NAME]
        context: dict[str, Any] = {"is_making": True, "refused": refused, "name": name}
        try:
            context["passkey"] = passkeys.shown(*passkeys.to_make(who(request)))
        except DurableAgentsError as why:
            context["refused"] = refused or why
        failed = context["refused"]
        return self.show(request, context, status=failed.status if failed else 200)


class Passkeys(NewPasskey):
    """Save the new passkey."""

    def post(self, request: HttpRequest) -> HttpResponse:
        user, given = who(request), request.POST
        if "answer" not in given:
            return redirect("second_factor")
        is_first = not factors.has_factor(user)
        try:
            codes = passkeys.set_up(
                user, given.get("challenge", ""), given["answer"], given.get("name", ""), by=actor(request, "")
            )
        except DurableAgentsError as refusal:
            return self.tell(request, refusal)
        if is_first:
            signed_in.end_elsewhere(user.pk, request)  # ends sessions by the password alone
            door.grown(request, passkeys.PASSKEY)
        again.proved(request, passkeys.PASSKEY)
        if codes:
            return self.show(request, {**sections(request), "codes": codes})
        messages.success(request, "Passkey added.", "ok")
        return redirect("second_factor")


class PasskeyNames(OfEveryone):
    """Rename a passkey."""

    http_method_names = ["post"]
    risky = "rename a passkey"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        try:
            passkeys.rename(who(request), pk, request.POST.get("name", ""), by=actor(request, ""))
        except DurableAgentsError as refusal:
            messages.error(request, refusal.detail, extra_tags="bad")
        else:
            messages.success(request, "Passkey renamed.", extra_tags="ok")
        return redirect("second_factor")


class PasskeyRemovals(OfEveryone):
    """Remove a passkey."""

    http_method_names = ["post"]
    risky = "remove a passkey"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        user = who(request)
        passkeys.take_away(user, pk, by=actor(request, ""))
        if not factors.has_factor(user):
            door.shrunk(request)
        signed_in.end_elsewhere(user.pk, request)  # they may be signed in by the removed passkey
        messages.success(request, "Passkey removed.", extra_tags="ok")
        return redirect("second_factor")
